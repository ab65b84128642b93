"""For redis-py: `client.lock(name, timeout=30, lock_class=dlock.Lock)`, with asyncio `dlock.aio.Lock`."""

from __future__ import annotations

import inspect
import logging
import threading
from types import SimpleNamespace
from typing import Any, Literal, Optional, Union

import redis.asyncio.lock
from redis.exceptions import LockError, ResponseError

from . import _aio, _sync
from ._hold import Options, Timeout, named

Seconds = Optional[float]


class _Base:
    """The lock of redis-py, as coroutines. `sleep` is ignored, because the server queues."""

    held_class: Any

    def __init__(
        self,
        redis: Any,
        name: str,
        timeout: Seconds = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: Seconds = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        self.redis, self.name, self.timeout = redis, name, timeout
        self.blocking, self.blocking_timeout = blocking, blocking_timeout
        self.raise_on_release_error = raise_on_release_error
        self._local: Any = threading.local() if thread_local else SimpleNamespace()

    @property
    def held(self) -> Any:
        """The native lock with its fence, if this object (by default: in this thread) has acquired it."""
        return getattr(self._local, "held", None)

    async def _acquire(
        self,
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
                raise named(LockError(f"the key {self.name} holds no lock of DLOCK"), self.name) from error
            raise
        self._local.held = held
        return True

    def _get(self, purpose: str) -> Any:
        if self.held is None:
            raise named(LockError(f"Cannot {purpose} a lock that's not owned or is already unlocked."), self.name)
        if purpose != "release" and not self.timeout:
            raise named(LockError(f"Cannot {purpose} a lock with no timeout"), self.name)
        return self.held

    async def _release(self) -> None:
        held, self._local.held = self._get("release"), None
        await held._release()

    async def _extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Adds time to the lease. Unlike that of redis-py, `replace_ttl` does not shorten it."""
        held = self._get("extend")
        await held._extend(additional_time + (0 if replace_ttl else held.remaining()))
        return True

    async def _reacquire(self) -> Literal[True]:
        await self._get("reacquire")._extend(self.timeout)
        return True

    async def _locked(self) -> bool:
        return await self._owner() is not None

    async def _owned(self) -> bool:
        return self.held is not None and await self._owner() == self.held.owner

    async def _owner(self) -> Optional[str]:
        owner = self.redis.execute_command("DLOCK.OWNER", self.name)
        owner = await owner if inspect.isawaitable(owner) else owner
        return owner.decode() if isinstance(owner, bytes) else owner

    async def _enter(self) -> Any:
        if await self._acquire():
            return self
        raise named(LockError("Unable to acquire lock within the time specified"), self.name)

    async def _exit(self, *_: Any) -> None:
        try:
            await self._release()
        except LockError:
            if self.raise_on_release_error:
                raise
            logging.getLogger("dlock").warning("the lock %s was lost before its release", self.name)


class Lock(_Base):
    held_class = _sync.Held
    release = _sync.blocking(_Base._release)
    extend = _sync.blocking(_Base._extend)
    reacquire = _sync.blocking(_Base._reacquire)
    locked = _sync.blocking(_Base._locked)
    owned = _sync.blocking(_Base._owned)
    __enter__ = _sync.blocking(_Base._enter)
    __exit__ = _sync.blocking(_Base._exit)

    def acquire(self, sleep: Seconds = None, *arguments: Any, **options: Any) -> bool:
        return _sync.blocking(self._acquire)(*arguments, **options)


class AsyncLock(_Base, redis.asyncio.lock.Lock):  # type: ignore[misc]
    """A subclass of the other, because redis-py declares that `lock_class` is one."""

    held_class = _aio.Held
    acquire = _Base._acquire
    release = _Base._release
    extend = _Base._extend
    reacquire = _Base._reacquire
    locked = _Base._locked
    owned = _Base._owned
    __aenter__ = _Base._enter
    __aexit__ = _Base._exit
