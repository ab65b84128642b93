"""Locks for threads."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Optional, TypeVar

from ._core import close_core_of, core_of
from ._hold import Hold, Key, Options, Stage, Timeout, clock

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
    __exit__ = blocking(Hold._exit)

    def __enter__(self) -> Held:
        blocking(Hold._enter)(self)
        return self

    def tell_lost(self) -> None:
        self.lost.set()
        if "on_lost" in self.options:
            threading.Thread(target=self.options["on_lost"], args=(self,), name="dlock on_lost", daemon=True).start()

    async def _perform(self, stage: Stage, timeout: Optional[float] = None) -> None:
        link = self.core.begin(self, stage)
        until = min(self.deadline, clock() + (threading.TIMEOUT_MAX if timeout is None else timeout))
        if not link.send_directly(self, min(3.0, until - clock())):
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
        if self.error is not None:
            raise self.error


class Locks:
    """The locks of the server, or cluster, that a client of redis-py connects to.

    All of one client share two connections to each server, however many threads wait.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def lock(self, key: Key, **options: Unpack[Options]) -> Held:
        """A lock for one `with` block, at whose end it raises Lost if it was lost meanwhile."""
        return Held(self._client, key, options)

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
