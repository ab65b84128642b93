"""Locks for threads."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Optional, TypeVar

from ._cores import close_core_of, core_of
from ._errors import Timeout
from ._events import OnEvent
from ._held import AnyHeld, LooksAtClock
from ._hold import Stage, clock
from ._options import Key, Options

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, Unpack

    P = ParamSpec("P")
T = TypeVar("T")


def blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Makes a method of a coroutine that is never suspended."""

    def run(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            function(*arguments, **options).send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        raise RuntimeError("suspended")

    run.__doc__ = function.__doc__
    return run


class LostEvent(LooksAtClock, threading.Event):
    """Is set when the lock is lost. It looks at the clock: after a pause, the thread that sets it may be late."""


class Held(AnyHeld):
    """A lock that is held until its release, or until it is lost."""

    def __init__(
        self, client: Any, key: Key, options: Options, on_event: Optional[OnEvent] = None, prefix: str = ""
    ) -> None:
        super().__init__(core_of(client, is_async=False), client, key, options, on_event, prefix)

    @property
    def lost(self) -> threading.Event:
        """Set when the lock is lost. It is made when it is used: of several threads, one is the first."""
        event: Optional[threading.Event] = self.__dict__.get("_lost")
        return event or self.__dict__.setdefault("_lost", LostEvent(self))

    acquire = blocking(AnyHeld._acquire)
    release = blocking(AnyHeld._release)
    extend = blocking(AnyHeld._extend)
    query = blocking(AnyHeld._query)
    __exit__ = blocking(AnyHeld._exit)

    def __enter__(self) -> Held:
        blocking(AnyHeld._enter)(self)
        return self

    def tell_lost(self) -> None:
        self.lost.set()
        super().tell_lost()

    def _call(self, function: Callable[[Any], object], argument: Any) -> None:
        self.core.call(function, argument)

    async def _perform(self, stage: Stage, timeout: Optional[float] = None) -> None:
        link = self.core.begin(self, stage)
        until = min(self.deadline, clock() + (threading.TIMEOUT_MAX if timeout is None else timeout))
        # A question is not worth the connection, which a read that times out ends.
        if stage is Stage.PROBING or not link.send_directly(self, min(3.0, until - clock())):
            self.core.submit(self)
        if self.is_pending:
            # Unlike those of Event, its methods cannot be interrupted half-way.
            done = threading.Lock()
            done.acquire()
            with self.core.lock:
                if self.is_pending:
                    self.waiters.append(done.release)
                else:
                    done.release()
            # An extension or release ends with the lease.
            done.acquire(timeout=-1 if timeout is None else min(max(0.0, until - clock()), threading.TIMEOUT_MAX))
        self._raise()


class Locks:
    """The locks of the server, or cluster, that a client of redis-py connects to.

    All of one client share two connections to each server, however many threads wait. `on_event` is called with each
    Event by a thread of the library.
    """

    def __init__(self, client: Any, on_event: Optional[OnEvent] = None) -> None:
        core_of(client, is_async=False)
        self._client, self._on_event = client, on_event

    def lock(self, key: Key, **options: Unpack[Options]) -> Held:
        """A lock for one `with` block, at whose end it raises Lost if it was lost meanwhile."""
        return Held(self._client, key, options, self._on_event)

    def acquire(self, key: Key, **options: Unpack[Options]) -> Held:
        """Waits for the lock in the server's queue. Raises Timeout."""
        held = self.lock(key, **options)
        held.acquire()
        return held

    def try_acquire(self, key: Key, **options: Unpack[Options]) -> Optional[Held]:
        """Acquires the lock if it is free, otherwise returns None."""
        options["timeout"] = 0
        with contextlib.suppress(Timeout):
            return self.acquire(key, **options)
        return None

    def close(self) -> None:
        """Ends what waits, connections and threads. Release all locks first: no lease is renewed any more."""
        close_core_of(self._client)


def lock(client: Any, key: Key, **options: Unpack[Options]) -> Held:
    """Short for `Locks(client).lock(key)`."""
    return Held(client, key, options)
