"""What is known of an acquisition, and what is sent for it next."""

from __future__ import annotations

import enum
import inspect
import itertools
import time
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Tuple, TypedDict, TypeVar, Union

from redis.exceptions import LockError, LockNotOwnedError, RedisError, ResponseError

if TYPE_CHECKING:
    from ._core import Core
    from ._link import Link

Key = Union[str, bytes]

if hasattr(time, "clock_gettime"):
    #: Goes on while the machine is suspended. On macOS the monotonic clock does.
    clock: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
else:
    clock = time.monotonic


Named = TypeVar("Named", bound=LockError)


def named(error: Named, key: str) -> Named:
    """The error with the name of its lock, which redis-py before 5.1 does not take."""
    error.lock_name = key
    return error


class Lost(LockNotOwnedError):
    """The lock is not held, or was not until its release: the work was not protected."""


class Timeout(LockError):
    """The lock was not granted in time."""


class Options(TypedDict, total=False):
    """Options of an acquisition. Times are in seconds."""

    lease: float  #: how long the lock is held without a renewal, 30 by default
    renew: bool  #: whether the lease is renewed until the release, as it is by default
    timeout: Optional[float]  #: how long to wait at most. None, the default, is no limit; 0 only tries
    shared: bool  #: any number of holders, if all are shared
    limit: int  #: at most this many holders, 1 by default
    on_lost: Callable[[Any], object]  #: called once with the lock when it is lost: by a thread, or the event loop


class Stage(enum.Enum):
    WAITING, HELD, RELEASING, OVER = range(4)
    #: Nobody wants it any more. Whether granted, waiting or unknown to the server, it is withdrawn.
    GIVEN_BACK = 4


class Hold:
    """An acquisition, from its first ACQUIRE to the reply to its last RELEASE.

    The coroutines are for threads too, for which `_perform` blocks instead of being suspended.
    """

    stage = Stage.WAITING
    #: The request id. What was granted too late is asked for again with a new one. 0 before the acquisition.
    number = 0
    owner = ""
    fence = sends = failures = 0
    #: Until when the lease lasts at least, or it is tried to give it back; and when something is to be sent.
    deadline = due_at = inf
    #: Copies of ACQUIRE or RELEASE may have arrived, although no reply did.
    has_copies = may_be_released = False
    #: Whether the caller waits for an operation, its outcome, and why it takes time.
    is_pending = False
    error: Optional[BaseException] = None
    trouble: Optional[BaseException] = None
    why_lost = "it was released"
    #: The server that it is sent to, and the one to ask once instead.
    link: Link
    asks: Optional[Link] = None

    def __init__(self, core: Core, client: Any, key: Key, options: Options, token: str = "") -> None:
        self.core, self.client, self.key, self.options, self.token = core, client, key, options, token
        # Fails here, instead of in the thread that sends it.
        self.raw_key = key if isinstance(key, bytes) else key.encode()
        self.limit = int(options.get("limit", 1))
        self.lease_ms = max(1, round(options.get("lease", 30.0) * 1000))
        self.timeout = options.get("timeout")
        self.waits = self.timeout is None or self.timeout > 0
        self.waiters: List[Callable[[], None]] = []
        self._entries = itertools.count()

    @property
    def is_held(self) -> bool:
        """Whether the lock is certainly held."""
        return self.remaining() > 0

    def remaining(self) -> float:
        """For how many more seconds the lock is certainly held without a renewal."""
        return max(0.0, self.deadline - clock()) if self.stage is Stage.HELD else 0.0

    def lost_error(self) -> Lost:
        return named(Lost(f"the lock {self.name} is lost: {self.why_lost}"), self.name)

    @property
    def name(self) -> str:
        return self.key if isinstance(self.key, str) else self.key.decode(errors="replace")

    def command(self, inbox: str) -> Tuple[Any, ...]:
        """What to send now."""
        if self.stage is Stage.WAITING:
            share = ("SHARED",) if self.options.get("shared") else ("LIMIT", self.limit) if self.limit != 1 else ()
            queue = ("QUEUE", inbox, 0) if self.waits else ()
            return ("DLOCK.ACQUIRE", self.key, self.owner, self.lease_ms, *share, *queue, "REQID", self.number)
        if self.stage is Stage.HELD:
            return ("DLOCK.EXTEND", self.key, self.owner, self.lease_ms, "FENCE", self.fence)
        fence = ("FENCE", self.fence) if self.stage is Stage.RELEASING else ()
        return ("DLOCK.RELEASE", self.key, self.owner, *fence, "REQID", self.number)

    def tell_lost(self) -> None:
        raise NotImplementedError

    async def _perform(self, stage: Stage, timeout: Optional[float] = None) -> None:
        """Begins an operation, and waits for its end or the timeout."""
        raise NotImplementedError

    async def _acquire(self) -> None:
        """Whatever ends the wait, also a cancellation or KeyboardInterrupt, leaves no lock and no request behind."""
        self.core.enlist(self)
        try:
            await self._perform(Stage.WAITING, self.timeout if self.waits else None)
            if not self.fence:
                why = f"within {self.timeout} s: {self.trouble or 'others hold it'}"
                raise named(Timeout(f"the lock {self.name} was not granted {why}"), self.name)
        except BaseException:
            self.core.abandon(self)
            raise

    async def _release(self) -> None:
        """Releases the lock. Raises Lost if it was lost before, or if no reply says that it was not."""
        try:
            await self._perform(Stage.RELEASING)
        except RedisError:
            raise
        except BaseException:
            self.core.abandon(self)
            raise

    async def _extend(self, seconds: float) -> None:
        """Makes the lease last at least this long from now on, and renewals ask for as much."""
        lease_ms, self.lease_ms = self.lease_ms, max(1, round(seconds * 1000))
        try:
            await self._perform(Stage.HELD)
        except ResponseError:
            self.lease_ms = lease_ms
            raise

    async def _query(self, *command: Any) -> Any:
        """Runs a command in the server while the lock is held, in one step. Raises Lost if it is not."""
        # It is None when the lock is lost, which can happen meanwhile.
        client = self.client
        if not self.is_held or client is None:
            raise self.lost_error()
        try:
            reply = client.execute_command("DLOCK.GUARD", self.key, self.owner, self.fence, *command)
            return await reply if inspect.isawaitable(reply) else reply
        except ResponseError as error:
            self.core.on_query_error(self, error)
            raise

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
