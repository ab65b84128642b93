"""Locks for asyncio. Threads renew the leases, so a blocked event loop loses no lock."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Callable, Optional

from ._core import close_core_of, core_of
from ._hold import BaseLocks, Hold, Key, Options, Stage


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
    __aenter__ = Hold._enter
    __aexit__ = Hold._exit

    def tell_lost(self) -> None:
        if "on_lost" in self.options:
            self._call_soon(self.options["on_lost"], self)
        self._call_soon(self.lost.set)

    async def _perform(self, stage: Stage, timeout: Optional[float] = None) -> None:
        done = self._loop.create_future()
        with self.core.lock:
            self.core.begin(self, stage, lambda: self._call_soon(_wake, done)).submit(self)
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


class Locks(BaseLocks[Held]):
    held_class = Held
    acquire = BaseLocks[Held]._acquire
    try_acquire = BaseLocks[Held]._try_acquire

    async def close(self) -> None:
        """Ends connections and threads. Release all locks first: no lease is renewed any more."""
        await asyncio.get_running_loop().run_in_executor(None, close_core_of, self._client)
