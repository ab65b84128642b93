"""The drop-in classes behave as the locks of redis-py do."""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
import time
from typing import Any, Dict

import pytest
import redis
import redis.asyncio
import redis.lock
from conftest import Proxy, lease_ms, owner, run, waiters
from redis.exceptions import LockError, LockNotOwnedError

import dlock
from dlock.testing import DlockServer


def new(client: redis.Redis, key: str, **options: Any) -> Any:
    return client.lock(key, lock_class=dlock.Lock, **options)


def test_lock_is_acquired_owned_and_released(client: redis.Redis, key: str) -> None:
    lock = new(client, key)
    assert (lock.locked(), lock.owned()) == (False, False)
    assert lock.acquire(blocking=False) is True
    assert (lock.locked(), lock.owned()) == (True, True)
    assert lock.held.fence > 0
    other = new(client, key)
    assert (other.locked(), other.owned()) == (True, False)
    lock.release()
    assert (lock.locked(), lock.owned()) == (False, False)


def test_lock_that_others_hold_is_not_acquired(client: redis.Redis, key: str) -> None:
    with new(client, key) as lock:
        assert new(client, key).acquire(blocking=False) is False
        assert new(client, key, blocking=False).acquire() is False
        assert new(client, key).acquire(blocking_timeout=0.05) is False
        assert lock.acquire(blocking=False) is False
        with pytest.raises(LockError, match="Unable to acquire"):
            new(client, key, blocking_timeout=0.05).__enter__()


def test_waiting_lock_is_acquired_when_it_becomes_free(client: redis.Redis, key: str) -> None:
    first = new(client, key, thread_local=False)
    assert first.acquire()
    threading.Timer(0.1, first.release).start()
    with new(client, key, blocking_timeout=10) as second:
        assert second.owned()


def test_lock_with_timeout_ends_after_it(client: redis.Redis, key: str) -> None:
    lock = new(client, key, timeout=0.2)
    assert lock.acquire()
    time.sleep(0.4)
    assert not lock.locked()
    with pytest.raises(LockNotOwnedError):
        lock.release()
    with pytest.raises(LockError):
        lock.release()


def test_lock_without_timeout_is_renewed(client: redis.Redis, key: str) -> None:
    with new(client, key) as lock:
        assert lock.held.is_held and 29_000 < lease_ms(client, key) <= 30_000
        with pytest.raises(LockError, match="no timeout"):
            lock.extend(1)
        with pytest.raises(LockError, match="no timeout"):
            lock.reacquire()


def test_extend_adds_time_or_replaces_it(client: redis.Redis, key: str) -> None:
    with new(client, key, timeout=10) as lock:
        assert lock.extend(10) is True
        assert 19_000 < lease_ms(client, key) <= 20_000
        assert lock.extend(25.5, replace_ttl=True) is True
        assert 25_000 < lease_ms(client, key) <= 25_500
        assert lock.reacquire() is True
        assert lease_ms(client, key) > 25_000


def test_operations_on_an_unlocked_lock_raise(client: redis.Redis, key: str) -> None:
    lock = new(client, key, timeout=10)
    for operation in (lock.release, lambda: lock.extend(1), lock.reacquire):
        with pytest.raises(LockError):
            operation()


def test_operations_on_a_lost_lock_raise(client: redis.Redis, key: str) -> None:
    for operation in ("release", "reacquire"):
        lock = new(client, key, timeout=10)
        assert lock.acquire()
        client.set(key, "a")
        with pytest.raises(LockNotOwnedError):
            getattr(lock, operation)()
        client.delete(key)


def test_with_block_logs_a_loss_if_it_is_not_to_raise(client: redis.Redis, key: str) -> None:
    with dlock.Lock(client, key, timeout=0.1, raise_on_release_error=False):
        time.sleep(0.2)
    with pytest.raises(LockNotOwnedError), dlock.Lock(client, key, timeout=0.1):
        time.sleep(0.2)


def test_lock_by_redis_py_itself_is_an_error_that_names_the_key(client: redis.Redis, key: str) -> None:
    with client.lock(key, timeout=10), pytest.raises(LockError, match=key) as raised:
        new(client, key, blocking_timeout=1).acquire()
    assert raised.value.lock_name == key


def test_outage_raises_what_redis_py_raises(own_server: DlockServer, key: str) -> None:
    client = own_server.client()
    with new(client, key):
        pass
    own_server.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
            new(client, key).acquire(blocking_timeout=0.3)

        async def test(r: redis.asyncio.Redis) -> None:
            own_server.process.send_signal(signal.SIGCONT)
            async with r.lock(key, lock_class=dlock.aio.Lock):
                own_server.process.send_signal(signal.SIGSTOP)
                with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
                    await r.lock(key, lock_class=dlock.aio.Lock, blocking_timeout=0.3).acquire()
                own_server.process.send_signal(signal.SIGCONT)

        run(test, own_server.port)
    finally:
        own_server.process.send_signal(signal.SIGCONT)
    with pytest.raises(redis.ConnectionError):
        new(redis.Redis(port=1), key).acquire(blocking=False)


def test_grace_period_is_not_taken(dlock_server: DlockServer, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlock._held, "_PROBE_TIME", 10.0)
    server = dlock_server.another("--dlock.startup-grace-ms", "20000")
    try:
        for options in ({"blocking": False}, {"blocking_timeout": 0.1}):
            with pytest.raises(redis.ResponseError, match="^GRACE"):
                new(server.client(), key).acquire(**options)
    finally:
        server.close()


def test_lock_is_one_of_redis_py(client: redis.Redis, key: str) -> None:
    lock = new(client, key, sleep=0.3)
    assert isinstance(lock, redis.lock.Lock)
    assert (lock.sleep, lock.thread_local, lock.name) == (0.3, True, key)


def test_token_shows_the_owner_and_cannot_be_set(client: redis.Redis, key: str) -> None:
    lock = new(client, key)
    assert lock.local.token is None
    with lock:
        assert lock.local.token == owner(client, key)
        with pytest.raises(NotImplementedError, match="owner"):
            lock.local.token = b"mine"


@pytest.mark.parametrize(
    "name", "lua_acquire lua_release lua_extend lua_reacquire do_acquire do_release do_extend do_reacquire".split()
)
def test_script_of_a_lock_cannot_be_replaced_or_called(client: redis.Redis, key: str, name: str) -> None:
    lock = new(client, key)
    with pytest.raises(NotImplementedError, match="runs no Lua: "):
        setattr(lock, name, lambda *_: 1)
    with pytest.raises(NotImplementedError, match="runs no Lua: "):
        getattr(lock, name)(keys=[key])
    with pytest.raises(NotImplementedError, match="runs no Lua: "):
        lock.register_scripts()


def test_subclass_whose_method_would_never_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="override acquire"):
        type("Mine", (dlock.Lock,), {"do_acquire": lambda *_: True})


def test_subclass_may_extend_in_its_own_way(client: redis.Redis, key: str) -> None:
    class BeatLock(dlock.Lock):
        lua_extend = None

        def extend(self, additional_time: float, replace_ttl: bool = True) -> Any:
            return super().extend(additional_time, replace_ttl=True)

    lock: Any = client.lock(key, timeout=10, lock_class=BeatLock)
    lock.lua_extend = client.register_script("return 1")
    with lock:
        for _ in range(5):
            assert lock.extend(10) is True
        assert lease_ms(client, key) <= 10_000


def test_extensions_add_up_to_the_longest_lease_of_the_server(client: redis.Redis, key: str) -> None:
    with new(client, key, timeout=400) as lock:
        for _ in range(3):
            assert lock.extend(150) is True
        assert 590_000 < lease_ms(client, key) <= 600_000
        for replace_ttl in (True, False):
            with pytest.raises(redis.ResponseError, match="^ERR"):
                lock.extend(601, replace_ttl=replace_ttl)


@pytest.mark.parametrize("name", [7, 1.5, memoryview(b"\xff:drop-in"), b"\xfe:drop-in"])
def test_name_may_be_what_redis_py_takes(client: redis.Redis, name: Any) -> None:
    with new(client, name) as lock:
        assert lock.owned()
        assert owner(client, name) == lock.local.token


def test_recipe_makes_each_lock_of_a_client_one_of_dlock(
    client: redis.Redis, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = functools.partialmethod(redis.Redis.lock, lock_class=dlock.Lock)
    monkeypatch.setattr(redis.Redis, "lock", ours)
    with client.lock(key, timeout=10) as lock:
        assert isinstance(lock, dlock.Lock) and lock.owned()


def test_token_is_part_of_the_owner_and_does_not_let_two_in(client: redis.Redis, key: str) -> None:
    lock = new(client, key)
    assert lock.acquire(token="job-7")
    assert owner(client, key).startswith(b"job-7:")
    assert new(client, key).acquire(blocking=False, token=b"job-7") is False
    lock.release()


def test_other_thread_releases_only_without_thread_local(client: redis.Redis, key: str) -> None:
    outcomes: Dict[bool, Any] = {}

    def release(lock: Any, is_local: bool) -> None:
        try:
            outcomes[is_local] = lock.release()
        except LockError as error:
            outcomes[is_local] = error

    for is_local in (True, False):
        lock = new(client, f"{key}:{is_local}", thread_local=is_local)
        lock.acquire()
        thread = threading.Thread(target=release, args=(lock, is_local))
        thread.start()
        thread.join()
    assert isinstance(outcomes[True], LockError) and outcomes[False] is None


def test_decoded_responses_do_not_matter(dlock_server: DlockServer, key: str) -> None:
    client = dlock_server.client(decode_responses=True)
    with new(client, key) as lock:
        assert lock.owned()


def test_coroutines_have_the_same_lock(dlock_server: DlockServer, client: redis.Redis, key: str) -> None:
    async def test(r: redis.asyncio.Redis) -> None:
        lock: Any = r.lock(key, timeout=10, lock_class=dlock.aio.Lock)
        assert await lock.acquire(blocking=False) is True
        assert await lock.locked() and await lock.owned()
        other: Any = r.lock(key, lock_class=dlock.aio.Lock, blocking_timeout=0.05)
        assert await other.acquire() is False
        assert await lock.extend(10) is True
        assert 19_000 < lease_ms(client, key) <= 20_000
        assert await lock.reacquire() is True
        await lock.release()
        with pytest.raises(LockError):
            await lock.release()
        async with r.lock(key, lock_class=dlock.aio.Lock) as again:
            assert again.held.is_held
        assert owner(client, key) is None

    run(test, dlock_server.port)


def test_task_acquires_the_lock_that_another_task_is_releasing(proxy: Proxy, client: redis.Redis, key: str) -> None:
    async def test(r: redis.asyncio.Redis) -> None:
        lock: Any = r.lock(key, lock_class=dlock.aio.Lock)
        await lock.acquire()
        waiting = asyncio.create_task(lock.acquire())
        while not waiters(client, key):
            await asyncio.sleep(0.01)
        # The other task has the lock before this one knows that it has released it.
        proxy.cut_after = b"DLOCK.RELEASE"
        with pytest.raises(dlock.Lost):
            await lock.release()
        assert await waiting and lock.held.is_held
        await lock.release()
        assert owner(client, key) is None

    run(test, proxy.port)
