"""Locks for asyncio. Threads renew the leases, so a blocked event loop loses no lock."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import weakref
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional

from ._cores import close_core_of, core_of
from ._errors import Timeout
from ._events import OnEvent
from ._held import AnyHeld, LooksAtClock
from ._hold import Stage
from ._link import Link
from ._options import Key, Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _Turns:
    """Of an event loop: what its tasks begin in one turn is sent together, and what ends wakes them together."""

    def __init__(self) -> None:
        self._begun: List[Held] = []
        self._ended: Deque[asyncio.Future[None]] = collections.deque()
        self._is_waking = False

    def begin(self, held: Held) -> None:
        self._begun.append(held)
        if len(self._begun) == 1:
            held._loop.call_soon(self._send_all)

    def _send_all(self) -> None:
        links: Dict[Link, List[Held]] = {}
        for held in self._begun:
            # Otherwise its task was cancelled.
            if held.waiters:
                links.setdefault(held.link, []).append(held)
        self._begun.clear()
        for link, holds in links.items():
            # Many could block the loop.
            if len(holds) > 1 or not link.send_directly(holds[0], None):
                link.submit(*holds)

    def end(self, held: Held, done: asyncio.Future[None]) -> None:
        """By any thread."""
        self._ended.append(done)
        if not self._is_waking:
            self._is_waking = True
            held._call_soon(self._wake_all)

    def _wake_all(self) -> None:
        # What is appended from now on calls this again.
        self._is_waking = False
        while self._ended:
            done = self._ended.popleft()
            if not done.done():
                done.set_result(None)


_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = weakref.WeakKeyDictionary()


class LostEvent(LooksAtClock, asyncio.Event):
    """Is set when the lock is lost. It looks at the clock: in a loop that was blocked, it would be set late."""


class Held(AnyHeld):
    """A lock that is held until its release, or until it is lost. A cancelled release goes on in the background."""

    def __init__(
        self, client: Any, key: Key, options: Options, on_event: Optional[OnEvent] = None, prefix: str = ""
    ) -> None:
        super().__init__(core_of(client, is_async=True), client, key, options, on_event, prefix)
        #: Set when the lock is lost.
        self.lost: asyncio.Event = LostEvent(self)
        self._loop = asyncio.get_running_loop()
        self._turns = _turns.get(self._loop) or _turns.setdefault(self._loop, _Turns())

    acquire = AnyHeld._acquire
    release = AnyHeld._release
    extend = AnyHeld._extend
    query = AnyHeld._query
    __aexit__ = AnyHeld._exit

    async def __aenter__(self) -> Held:
        await self._enter()
        return self

    def tell_lost(self) -> None:
        super().tell_lost()
        self._call_soon(self.lost.set)

    def _call(self, function: Callable[[Any], object], argument: Any) -> None:
        self._call_soon(function, argument)

    async def _perform(self, stage: Stage, timeout: Optional[float] = None) -> None:
        done = self._loop.create_future()
        with self.core.lock:
            self.core.begin(self, stage)
            self.waiters.append(lambda: self._turns.end(self, done))
        self._turns.begin(self)
        await asyncio.wait([done], timeout=timeout) if timeout else await done
        self._raise()

    def _call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        # Nobody waits in a loop that is closed.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)


class Locks:
    """As `dlock.Locks`, for the clients of `redis.asyncio`. The event loop calls `on_event`."""

    def __init__(self, client: Any, on_event: Optional[OnEvent] = None) -> None:
        core_of(client, is_async=True)
        self._client, self._on_event = client, on_event

    def lock(self, key: Key, **options: Unpack[Options]) -> Held:
        """A lock for one `async with` block, at whose end it raises Lost if it was lost meanwhile.

        A loss does not cancel the task: wait for `held.lost` beside the work, or write with `held.query`.
        """
        return Held(self._client, key, options, self._on_event)

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
