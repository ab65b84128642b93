"""What is known of an acquisition, and what is sent for it next."""

from __future__ import annotations

import enum
import time
from functools import partial
from math import ceil, inf
from typing import Any, Callable, List, Optional, Tuple

from ._errors import Lost, lost, no_reply
from ._options import Key, Terms, raw_key

if hasattr(time, "clock_gettime"):
    #: Goes on while the machine is suspended. On macOS the monotonic clock does.
    clock: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
else:
    clock = time.monotonic


def deadline_after(start: float, milliseconds: float) -> float:
    """Until when a lease lasts on the server at least, if its clock is a little faster."""
    return start + milliseconds * 0.000999 - 0.002


class Stage(enum.Enum):
    WAITING, HELD, RELEASING, OVER = range(4)
    #: Nobody wants it any more. Whether granted, waiting or unknown to the server, it is withdrawn.
    GIVEN_BACK = 4
    #: It has timed out, and the server is asked why.
    PROBING = 5
    #: No acquisition, but the question who holds the lock that one waits for.
    ASKING = 6


class Hold:
    """An acquisition, from its first ACQUIRE to the reply to its last RELEASE."""

    stage = Stage.WAITING
    #: Its place in the table, and the end of its request id. What was granted too late is asked for again with a new
    #: one. 0 before the acquisition.
    number = 0
    process = owner = ""
    fence = sends = failures = late_grants = 0
    began_at = granted_at = 0.0
    #: Until when the lease lasts at least, or it is tried to give it back; and when something is to be sent.
    deadline = due_at = inf
    #: When it is lost although it is renewed.
    ends_at = inf
    #: Copies of ACQUIRE or RELEASE may have arrived, although no reply did.
    has_copies = may_be_released = False
    #: The server has said that others hold or await it, and the program that it waits.
    is_taken = has_told_waiting = False
    #: Whether the caller waits for an operation, its outcome, and why it takes time.
    is_pending = False
    error: Optional[BaseException] = None
    trouble: Optional[BaseException] = None
    #: Why it is not held any more: a word of Lost; and whether that is to be told.
    reason = ""
    has_lost = False
    #: For which acquisition it asks who holds the lock.
    asker: Optional[Hold] = None
    #: The links to the server that it is sent to, and to the one to ask once instead.
    link: Any = None
    asks: Any = None

    def __init__(self, key: Key, terms: Terms) -> None:
        self.key, self.raw_key, self.terms = key, raw_key(key), terms
        self.lease_ms = terms.lease_ms
        self.waiters: List[Callable[[], None]] = []

    @property
    def is_held(self) -> bool:
        """Whether the lock is certainly held."""
        return self.remaining() > 0

    def remaining(self) -> float:
        """For how many more seconds the lock is certainly held without a renewal."""
        return max(0.0, self.deadline - clock()) if self.stage is Stage.HELD else 0.0

    def is_expired(self) -> bool:
        """Whether its deadline is over, although that is not told yet."""
        return self.stage is Stage.HELD and self.deadline <= clock()

    def is_lost(self) -> bool:
        return self.has_lost or self.is_expired()

    def expiry(self) -> str:
        """Why its deadline is over."""
        return "MAXHOLD" if self.deadline >= self.ends_at else "EXPIRED"

    def lost_error(self) -> Lost:
        reason = self.expiry() if self.is_expired() else self.reason
        return lost(self.name, reason, self.last_error() if reason == "EXPIRED" else None)

    def last_error(self) -> Optional[BaseException]:
        """Why it was not renewed, or not granted yet, as far as that is known."""
        is_unanswered = self.stage is Stage.HELD and self.due_at == inf and self.terms.renew
        return self.trouble or (no_reply() if is_unanswered and self.deadline < self.ends_at else None)

    @property
    def name(self) -> str:
        return self.raw_key.decode(errors="replace")

    def begin_lease(self, start: float, lease_ms: int) -> None:
        self.deadline = min(max(self.deadline, deadline_after(start, lease_ms)), self.ends_at)

    def asked_ms(self) -> int:
        """The lease to ask for: a little more than what is left until it is lost anyway."""
        left = self.terms.max_hold if self.ends_at == inf else self.ends_at - clock()
        return self.lease_ms if left == inf else min(self.lease_ms, ceil(max(0.0, left) * 1002) + 10)

    def wanted(self) -> Tuple[Any, ...]:
        """What a reply must be for. Otherwise something else is or will be sent."""
        return self.stage, self.number, self.lease_ms

    def command(self, inbox: bytes) -> Tuple[Any, ...]:
        """What to send now. In bytes, because the client may encode text in another way."""
        request = (b"REQID", f"{self.process}:{self.number}".encode())
        names = (self.raw_key, self.owner.encode())
        if self.stage is Stage.WAITING:
            queue = (b"QUEUE", inbox, 0) if self.terms.waits else ()
            return (b"DLOCK.ACQUIRE", *names, self.asked_ms(), *self.terms.share, *queue, *request)
        if self.stage is Stage.HELD:
            return (b"DLOCK.EXTEND", *names, self.asked_ms(), b"FENCE", self.fence)
        if self.stage is Stage.PROBING:
            # Without a fence it changes nothing, because the owner holds nothing.
            return (b"DLOCK.EXTEND", *names, self.lease_ms)
        if self.stage is Stage.ASKING:
            return (b"DLOCK.OWNER", self.raw_key)
        fence = (b"FENCE", self.fence) if self.stage is Stage.RELEASING else ()
        return (b"DLOCK.RELEASE", *names, *fence, *request)

    # What the caller is told. These are called while the table is locked.

    def tell_queued(self, ahead: int) -> None:
        """The request waits for the first time."""

    def tell_waiting(self, holder: str) -> None:
        """The request has waited for a second or more."""

    def tell_lost(self) -> None:
        """It is lost, before its release."""
