"""What happens to the locks, for metrics."""

from __future__ import annotations

from typing import Callable, NamedTuple, Optional

from ._options import Key


class Event(NamedTuple):
    """Each acquisition ends with `acquired` or `not acquired`, and each `acquired` with `released` or `lost`."""

    #: queued, acquired, not acquired, released or lost.
    name: str
    key: Key
    #: How long it was waited for, or held.
    seconds: float
    #: If queued: how many wait before it, counted up to 1 000.
    ahead: int = 0
    #: Why it was not acquired, or lost.
    error: Optional[BaseException] = None


OnEvent = Callable[[Event], object]
