"""Locks for asyncio. Threads renew the leases, so a blocked event loop loses no lock."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Callable, Optional

from ._core import close_core_of, core_of
from ._hold import Hold, Key, Options, Stage, Timeout

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Held(Hold):
    """A lock that is held until its release, or until it is lost. A cancelled release goes on in the background."""

    def __init__(self, client: Any, key: Key, options: Options, token: str = "") -> None:
        super().__init__(core_of(client), client, key, options, token)
        #: Set when the lock is lost.
        self.lost = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    acquire = Hold._acquire
    release = Hold._release
    extend = Hold._extend
    query = Hold._query
    __aexit__ = Hold._exit

    async def __aenter__(self) -> Held:
        await self._enter()
        return self

    def tell_lost(self) -> None:
        if "on_lost" in self.options:
            self._call_soon(self.options["on_lost"], self)
        self._call_soon(self.lost.set)

    async def _perform(self, stage: Stage, timeout: Optional[float] = None) -> None:
        done = self._loop.create_future()
        with self.core.lock:
            link = self.core.begin(self, stage)
            self.waiters.append(lambda: self._call_soon(_wake, done))
        if not link.send_directly(self, None):
            self.core.submit(self)
        await asyncio.wait([done], timeout=timeout) if timeout else await done
        if self.error is not None:
            raise self.error

    def _call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        # Nobody waits in a loop that is closed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)


def _wake(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


class Locks:
    """As `dlock.Locks`, for the clients of `redis.asyncio`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def lock(self, key: Key, **options: Unpack[Options]) -> Held:
        """A lock for one `async with` block, at whose end it raises Lost if it was lost meanwhile.

        A loss does not cancel the task: wait for `held.lost` beside the work, or write with `held.query`.
        """
        return Held(self._client, key, options)

    async def acquire(self, key: Key, **options: Unpack[Options]) -> Held:
        """Waits for the lock in the server's queue. Raises Timeout."""
        held = self.lock(key, **options)
        await held.acquire()
        return held

    async def try_acquire(self, key: Key, **options: Unpack[Options]) -> Optional[Held]:
        """Acquires the lock if it is free, otherwise returns None."""
        options["timeout"] = 0
        with contextlib.suppress(Timeout):
            return await self.acquire(key, **options)
        return None

    async def close(self) -> None:
        """Ends what waits, connections and threads. Release all locks first: no lease is renewed any more."""
        await asyncio.get_running_loop().run_in_executor(None, close_core_of, self._client)
