"""For redis-py: `client.lock(name, timeout=30, lock_class=dlock.Lock)`, with asyncio `dlock.aio.Lock`."""

from __future__ import annotations

import inspect
import threading
from types import SimpleNamespace
from typing import Any, Literal, Optional, Union

import redis.asyncio.lock
import redis.lock
from redis.exceptions import LockError, ResponseError

from . import _aio, _sync
from ._hold import Options, Timeout

Seconds = Optional[float]


class _Local(threading.local):
    #: Also in threads that have acquired nothing.
    token: Any = None


class _Base:
    """What the two locks of redis-py ask the server, as coroutines. Their token is the native lock."""

    local: Any

    def register_scripts(self: Any) -> None:
        """The last step of the constructor. There are none."""
        self.local = _Local() if self.thread_local else SimpleNamespace(token=None)

    @property
    def held(self: Any) -> Any:
        """The native lock with its fence, if this object (by default: in this thread) has acquired it."""
        return self.local.token

    async def _acquire(
        self: Any,
        blocking: Optional[bool] = None,
        blocking_timeout: Seconds = None,
        token: Union[str, bytes, None] = None,
    ) -> bool:
        """Without a timeout of this object the lease is renewed. With one the lock ends after it, as in redis-py."""
        wait = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        is_blocking = self.blocking if blocking is None else blocking
        options: Options = {"lease": self.timeout or 30.0, "renew": not self.timeout}
        options["timeout"] = wait if is_blocking else 0
        prefix = token.decode() if isinstance(token, bytes) else token or ""
        held = self.held_class(self.redis, self.name, options, prefix and f"{prefix}:")
        try:
            await held._acquire()
        except Timeout:
            return False
        except ResponseError as error:
            if str(error).startswith("WRONGTYPE"):
                raise held.new_error(LockError, "is a key that holds no lock of DLOCK") from error
            raise
        self.local.token = held
        return True

    def do_release(self, expected_token: Any) -> Any:
        return expected_token.release()

    async def _extend(self: Any, additional_time: float, replace_ttl: bool) -> Literal[True]:
        """Adds time to the lease. Unlike that of redis-py, `replace_ttl` does not shorten it."""
        await self.held._extend(additional_time + (0 if replace_ttl else self.held.remaining()))
        return True

    def do_reacquire(self: Any) -> Any:
        return self.do_extend(self.timeout, replace_ttl=True)

    async def _locked(self: Any) -> bool:
        return await self._owner() is not None

    async def _owned(self: Any) -> bool:
        return self.held is not None and await self._owner() == self.held.owner

    async def _owner(self: Any) -> Optional[str]:
        owner = self.redis.execute_command("DLOCK.OWNER", self.name)
        owner = await owner if inspect.isawaitable(owner) else owner
        return owner.decode() if isinstance(owner, bytes) else owner


class Lock(_Base, redis.lock.Lock):
    """`sleep` is ignored, because the server queues."""

    held_class = _sync.Held
    do_extend = _sync.blocking(_Base._extend)
    locked = _sync.blocking(_Base._locked)
    owned = _sync.blocking(_Base._owned)

    def acquire(self, sleep: Seconds = None, *arguments: Any, **options: Any) -> bool:
        return _sync.blocking(self._acquire)(*arguments, **options)


class AsyncLock(_Base, redis.asyncio.lock.Lock):
    """`sleep` is ignored, because the server queues."""

    held_class = _aio.Held
    acquire = _Base._acquire

    async def release(self) -> None:
        """Forgets the lock at first, unlike redis-py 8.1: before the reply, another task may have acquired it."""
        held, self.local.token = self.held, None
        await (self.do_release(held) if held else super().release())

    do_extend = _Base._extend
    locked = _Base._locked
    owned = _Base._owned
