"""What happens to the locks, for metrics and the log."""

from __future__ import annotations

import logging
from typing import Callable, NamedTuple, Optional

from ._options import Key


class Event(NamedTuple):
    """Each acquisition ends with `acquired` or `not acquired`, and each `acquired` with `released` or `lost`."""

    #: queued, waiting, acquired, not acquired, released or lost.
    name: str
    key: Key
    #: How long it was waited for, or held.
    seconds: float
    #: If queued: how many wait before it, counted up to 1 000.
    ahead: int = 0
    #: Why it was not acquired, or lost.
    error: Optional[BaseException] = None
    #: If waiting for a second or more: who holds the lock, if the server has told that.
    holder: str = ""


OnEvent = Callable[[Event], object]

_logger = logging.getLogger("dlock")


def log_waiting(event: Event) -> None:
    key = event.key if isinstance(event.key, str) else event.key.decode(errors="replace")
    holder = event.holder or "an unknown holder"
    _logger.warning("waiting for lock %s for %.1f s, which is held by %s", key, event.seconds, holder)
