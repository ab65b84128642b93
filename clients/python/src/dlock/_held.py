"""The operations of a lock, as coroutines: for threads, `_perform` blocks, and they are never suspended."""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Callable, Optional

from redis.exceptions import AskError, LockError, MovedError, RedisError

from ._core import Core
from ._errors import ROUTED, named, no_reply, node_of_cluster, raised, timed_out, with_word, word_of
from ._events import Event, OnEvent, log_waiting
from ._hold import Hold, Stage, clock
from ._options import Key, Options, milliseconds, terms
from ._query import send_once

#: For an acquisition that does not wait, and for the question why one has timed out.
_PATIENCE, _PROBE_TIME = 9.0, 0.2


class LooksAtClock:
    """An event of a lock that counts as set once the lock is lost, whoever has noticed."""

    def __init__(self, hold: Hold) -> None:
        super().__init__()
        # Without a circle, so that a lock that is dropped is gone at once.
        self._hold = weakref.ref(hold)

    def is_set(self) -> bool:
        hold, is_set = self._hold(), super().is_set()  # type: ignore[misc]
        return is_set or (hold is not None and hold.is_lost())


class AnyHeld(Hold):
    """What locks for threads and for coroutines have in common."""

    def __init__(
        self, core: Core, client: Any, key: Key, options: Options, on_event: Optional[OnEvent], prefix: str
    ) -> None:
        super().__init__(key, terms(options))
        self.core, self.client, self._on_event, self._prefix = core, client, on_event, prefix
        self._entries, self._has_ended = itertools.count(), False

    async def _perform(self, stage: Stage, timeout: Optional[float] = None) -> None:
        """Begins an operation, and waits for its end or the timeout."""
        raise NotImplementedError

    def _call(self, function: Callable[[Any], object], argument: Any) -> None:
        """Calls a function of the program where that delays nothing."""
        raise NotImplementedError

    def _raise(self) -> None:
        """Raises the outcome of an operation, which is not kept: it has the frames of the caller."""
        error, self.error = self.error, None
        if error is not None:
            raise raised(error)

    async def _acquire(self) -> None:
        """Whatever ends the wait, also a cancellation or KeyboardInterrupt, leaves no lock and no request behind."""
        self.core.enlist(self, self._prefix)
        try:
            await self._perform(Stage.WAITING, self.terms.timeout if self.terms.waits else _PATIENCE)
            if not self.fence:
                raise await self._why_not()
        except BaseException as error:
            self.core.abandon(self)
            self._tell("not acquired", clock() - self.began_at, error=error)
            raise
        self._tell("acquired", clock() - self.began_at)

    async def _why_not(self) -> BaseException:
        """The cause of a timeout. That others hold the lock is said only if the server did."""
        trouble, seconds = self.trouble, self.terms.timeout or 0.0
        if self.terms.waits:
            if trouble is None:
                trouble = self.link.silence() if self.is_taken else no_reply()
            if trouble is None:
                await self._perform(Stage.PROBING, _PROBE_TIME)
                trouble = self.trouble
        elif not self.is_taken:
            return raised(trouble or no_reply())
        return timed_out(self.name, seconds, trouble)

    async def _release(self) -> None:
        """Releases the lock. Raises Lost if it was lost before, or if no reply says that it was not."""
        try:
            await self._perform(Stage.RELEASING)
        except RedisError as error:
            self._tell_end("lost", error)
            raise
        except BaseException:
            self.core.abandon(self)
            self._tell_end("released")
            raise
        self._tell_end("released")

    async def _extend(self, seconds: float) -> None:
        """Makes the lease last at least this long from now on, and renewals ask for as much."""
        lease_ms, self.lease_ms = self.lease_ms, milliseconds("the new lease", seconds) or 0
        try:
            await self._perform(Stage.HELD)
        except RedisError:
            self.lease_ms = lease_ms
            raise

    async def _query(self, *command: Any) -> Any:
        """Runs a command in the server while the lock is held, in one step. Raises Lost if it is not.

        It is sent once, even by a client that repeats commands: after an error without a reply, it may have run.
        """
        guarded = ("DLOCK.GUARD", self.raw_key, self.owner.encode(), self.fence, *command)
        node, commands = self.link and self.link.node, [guarded]
        while self.is_held:
            try:
                return await send_once(self.client, node, commands)
            except AskError as error:
                # It has not run: the lock is in another server of the cluster now.
                is_moved = isinstance(error, MovedError)
                if node is None:
                    raise node_of_cluster(f"{'MOVED' if is_moved else 'ASK'} {error}") from None
                self.core.follow(self, error.slot_id, error.host, error.port, is_moved)
                node = self.core.route(self).node
                commands = [guarded] if is_moved else [("ASKING",), guarded]
            except RedisError as error:
                told = with_word(error)
                if word_of(told) in ROUTED:
                    # As redis-py before 6 tells it.
                    told = node_of_cluster(str(told))
                self.core.on_query_error(self, told)
                raise told from None
        raise self.lost_error()

    async def _enter(self) -> Any:
        if not self.number:
            await self._acquire()
        elif not self.is_held:
            raise self.lost_error()
        if next(self._entries):
            raise named(LockError(f"the lock {self.name} is entered once only: make one for each block"), self.name)
        return self

    async def _exit(self, _kind: Any, error: Optional[BaseException], _traceback: Any) -> None:
        try:
            await self._release()
        except RedisError:
            # An exception of the block matters more.
            if error is None:
                raise

    # Events.

    def tell_queued(self, ahead: int) -> None:
        self._tell("queued", clock() - self.began_at, ahead)

    def tell_waiting(self, holder: str) -> None:
        event = Event("waiting", self.key, clock() - self.began_at, holder=holder)
        self._call(log_waiting, event)
        if self._on_event is not None:
            self._call(self._on_event, event)

    def tell_lost(self) -> None:
        self._tell_end("lost", self.lost_error())
        if self.terms.on_lost is not None:
            self._call(self.terms.on_lost, self)

    def _tell_end(self, name: str, error: Optional[BaseException] = None) -> None:
        if self.fence and not self._has_ended:
            self._has_ended = True
            self._tell(name, clock() - self.granted_at, error=error)

    def _tell(self, name: str, seconds: float, ahead: int = 0, error: Optional[BaseException] = None) -> None:
        if self._on_event is not None:
            self._call(self._on_event, Event(name, self.key, seconds, ahead, error))
