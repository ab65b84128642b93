"""Locks for threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Optional, TypeVar

from ._core import close_core_of, core_of
from ._hold import BaseLocks, Hold, Key, Options, Stage, clock

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


class Held(Hold):
    """A lock that is held until its release, or until it is lost."""

    def __init__(self, client: Any, key: Key, options: Options, token: str = "") -> None:
        super().__init__(core_of(client), client, key, options, token)
        #: Set when the lock is lost.
        self.lost = threading.Event()

    acquire = blocking(Hold._acquire)
    release = blocking(Hold._release)
    extend = blocking(Hold._extend)
    query = blocking(Hold._query)
    __enter__ = blocking(Hold._enter)
    __exit__ = blocking(Hold._exit)

    def tell_lost(self) -> None:
        self.lost.set()
        if "on_lost" in self.options:
            threading.Thread(target=self.options["on_lost"], args=(self,), name="dlock on_lost", daemon=True).start()

    async def _perform(self, stage: Stage, timeout: Optional[float] = None) -> None:
        start = clock()
        # Unlike those of Event, its methods cannot be interrupted half-way.
        done = threading.Lock()
        done.acquire()
        link = self.core.begin(self, stage, done.release)
        # An extension or release ends with the lease.
        within = min(3.0, self.deadline - start, 3.0 if timeout is None else timeout)
        if not link.send_directly(self, within):
            self.core.submit(self)
        left = -1 if timeout is None else max(0.0, start + timeout - clock())
        done.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        if self.error is not None:
            raise self.error


class Locks(BaseLocks[Held]):
    held_class = Held
    acquire = blocking(BaseLocks[Held]._acquire)
    try_acquire = blocking(BaseLocks[Held]._try_acquire)

    def close(self) -> None:
        """Ends connections and threads. Release all locks first: no lease is renewed any more."""
        close_core_of(self._client)


def lock(client: Any, key: Key, **options: Unpack[Options]) -> Held:
    """Short for `Locks(client).lock(key)`."""
    return Held(client, key, options)
