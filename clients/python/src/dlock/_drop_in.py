"""For redis-py: `client.lock(name, timeout=30, lock_class=dlock.Lock)`, with asyncio `dlock.aio.Lock`."""

from __future__ import annotations

import inspect
import logging
import re
import threading
from types import SimpleNamespace
from typing import Any, Literal, NoReturn, Optional, Union

import redis.asyncio.lock
import redis.lock
from redis.exceptions import LockError, ResponseError

from . import _aio, _sync
from ._errors import Timeout, named
from ._options import Key, Options, raw_key

Seconds = Optional[float]

_EXTEND = "use extend(t, replace_ttl=True) for a lease of t from now on, extend(t) to add to it"


class _Refused:
    """What a lock of redis-py lets programs replace, and a lock of DLOCK has not."""

    def __init__(self, advice: str) -> None:
        self._advice = advice

    def __get__(self, lock: Any, kind: Any) -> Any:
        return self if lock is None else self._refuse

    def __set__(self, lock: Any, value: Any) -> NoReturn:
        self._refuse()

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        self._refuse()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"a lock of DLOCK runs no Lua: {self._advice}")


class _Local:
    """`lock.local.token` is the owner, to look at."""

    def __init__(self, lock: _Base) -> None:
        self._lock = lock

    @property
    def token(self) -> Optional[bytes]:
        held = self._lock.held
        return None if held is None else str(held.owner).encode()

    @token.setter
    def token(self, value: Any) -> NoReturn:
        raise NotImplementedError(
            "the token of a lock of DLOCK cannot be set: to release it elsewhere, pass the lock itself with"
            " thread_local=False, or use the option owner of dlock.Locks"
        )


class _Base:
    """The lock of redis-py, as coroutines. `sleep` is ignored, because the server queues."""

    held_class: Any

    lua_release = do_release = _Refused("override release(), and call that of the base class")
    lua_extend = do_extend = lua_reacquire = do_reacquire = _Refused(_EXTEND)
    lua_acquire = do_acquire = _Refused("override acquire(), and call that of the base class")
    register_scripts = _Refused("there is nothing to register")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("do_acquire", "do_release", "do_extend", "do_reacquire", "register_scripts"):
            if name in cls.__dict__:
                raise TypeError(f"{cls.__name__}.{name} would never be called: override {name[3:]}() of dlock.Lock")

    def __init__(
        self,
        redis: Any,
        name: Any,
        timeout: Seconds = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: Seconds = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        self.redis, self.name, self.timeout = redis, name, timeout
        self.sleep, self.blocking, self.blocking_timeout = sleep, blocking, blocking_timeout
        self.thread_local, self.raise_on_release_error = thread_local, raise_on_release_error
        self._local: Any = threading.local() if thread_local else SimpleNamespace()

    @property
    def held(self) -> Any:
        """The native lock with its fence, if this object (by default: in this thread) has acquired it."""
        return getattr(self._local, "held", None)

    @property
    def local(self) -> _Local:
        return _Local(self)

    async def _acquire(
        self,
        blocking: Optional[bool] = None,
        blocking_timeout: Seconds = None,
        token: Union[str, bytes, None] = None,
    ) -> bool:
        """Without a timeout of this object the lease is renewed. With one the lock ends after it, as in redis-py.

        False only if the server says that others hold it: an outage raises what redis-py raises.
        """
        wait = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        is_blocking = self.blocking if blocking is None else blocking
        options: Options = {"lease": self.timeout or 30.0, "renew": not self.timeout}
        options["timeout"] = (None if wait is None else max(0.0, wait)) if is_blocking else 0
        prefix = token.decode() if isinstance(token, bytes) else token or ""
        held = self.held_class(self.redis, _key(self.name), options, prefix=prefix and f"{prefix}:")
        try:
            await held._acquire()
        except Timeout as error:
            if error.__cause__ is None:
                return False
            raise error.__cause__ from None
        except ResponseError as error:
            if str(error).startswith("WRONGTYPE"):
                raise named(LockError(f"the key {held.name} holds no lock of DLOCK"), held.name) from error
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
        """Adds time to the lease, up to the longest that the server allows. `replace_ttl` does not shorten it."""
        held = self._get("extend")
        if replace_ttl:
            await held._extend(additional_time)
            return True
        try:
            await held._extend(additional_time + held.remaining())
        except ResponseError as error:
            longest = _longest_lease(error)
            if longest is None or additional_time > longest:
                raise
            await held._extend(longest)
        return True

    async def _reacquire(self) -> Literal[True]:
        await self._get("reacquire")._extend(self.timeout)
        return True

    async def _locked(self) -> bool:
        return await self._owner() is not None

    async def _owned(self) -> bool:
        return self.held is not None and await self._owner() == self.local.token

    async def _owner(self) -> Optional[bytes]:
        # In bytes, however the client is configured.
        owner = self.redis.execute_command("DLOCK.OWNER", raw_key(_key(self.name)), NEVER_DECODE=True)
        found: Optional[bytes] = await owner if inspect.isawaitable(owner) else owner
        return found

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


def _key(name: Any) -> Key:
    """redis-py takes numbers and memoryviews, too."""
    if isinstance(name, (bytearray, memoryview)):
        return bytes(name)
    return str(name) if isinstance(name, (int, float)) and not isinstance(name, bool) else name


def _longest_lease(error: ResponseError) -> Optional[float]:
    """What the server says about the longest lease."""
    found = re.search(r"lease-ms must be 1 to (\d+)", str(error))
    return int(found[1]) / 1000 if found else None


class _Blocking(_Base):
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


class Lock(_Blocking, redis.lock.Lock):  # type: ignore[misc]
    """A lock of redis-py, for which programs may ask with isinstance."""


class AsyncLock(_Base, redis.asyncio.lock.Lock):  # type: ignore[misc]
    """The same with asyncio. redis-py declares that `lock_class` is a subclass of its own."""

    held_class = _aio.Held
    acquire = _Base._acquire
    release = _Base._release
    extend = _Base._extend
    reacquire = _Base._reacquire
    locked = _Base._locked
    owned = _Base._owned
    __aenter__ = _Base._enter
    __aexit__ = _Base._exit
