"""What is refused before anything is sent, and what the options mean."""

from __future__ import annotations

import asyncio
import time
from math import inf, nan
from typing import Any, List

import pytest
import redis
import redis.asyncio
from conftest import eventually, info, lease_ms, owner, run, waiters
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.connection import Connection
from redis.sentinel import Sentinel

import dlock
from dlock.testing import DlockServer


@pytest.mark.parametrize(
    "options",
    [
        {"blocking": False},
        {"leas": 3},
        {"lease": "soon"},
        {"lease": True},
        {"lease": None},
        {"timeout": "1"},
        {"max_hold": "1"},
        {"renew": 1},
        {"shared": "yes"},
        {"limit": 1.5},
        {"limit": True},
        {"owner": 7},
        {"on_lost": "call me"},
    ],
)
def test_option_with_unknown_name_or_wrong_type_is_a_type_error(options: Any, key: str) -> None:
    with pytest.raises(TypeError, match=next(iter(options))):
        dlock.lock(redis.Redis(port=1), key, **options)


@pytest.mark.parametrize(
    "options",
    [
        *({name: value} for name in ("lease", "timeout", "max_hold") for value in (-1, -0.001, nan, -inf)),
        {"lease": 0},
        {"lease": inf},
        {"max_hold": 0},
        {"limit": 0},
        {"limit": 2**31},
        {"shared": True, "limit": 3},
        {"owner": ""},
        {"owner": "x" * 513},
    ],
)
def test_option_out_of_its_range_is_a_value_error(options: Any, key: str) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        dlock.lock(redis.Redis(port=1), key, **options)


@pytest.mark.parametrize("key", [None, 5, 1.5, bytearray(b"k"), memoryview(b"k"), ["k"]])
def test_key_that_is_neither_text_nor_bytes_is_refused(key: Any) -> None:
    with pytest.raises(TypeError, match="text or bytes"):
        dlock.lock(redis.Redis(port=1), key)


@pytest.mark.parametrize("key", ["", b""])
def test_empty_key_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match="empty"):
        dlock.lock(redis.Redis(port=1), key)


def test_fraction_of_a_millisecond_is_rounded_up(client: redis.Redis, key: str) -> None:
    held = dlock.lock(client, key, lease=0.0001, timeout=0.0001, max_hold=0.0701)
    assert (held.lease_ms, held.terms.timeout, held.terms.max_hold) == (1, 0.001, 0.071)
    assert dlock.lock(client, key, lease=0.07).lease_ms == 70
    assert not dlock.lock(client, key, timeout=0).terms.waits


def test_infinite_timeout_and_max_hold_are_no_limits(client: redis.Redis, other: dlock.Locks, key: str) -> None:
    with dlock.lock(client, key, timeout=inf, max_hold=inf) as held:
        assert held.remaining() > 29
    with dlock.lock(client, key, timeout=1e30):
        pass


def test_lease_beyond_that_of_the_server_is_its_error(client: redis.Redis, key: str) -> None:
    for lease in (601.0, 1e30):
        with pytest.raises(redis.ResponseError, match="^ERR"):
            dlock.Locks(client).acquire(key, lease=lease)


def test_lease_shorter_than_the_way_is_lost_after_ten_grants(client: redis.Redis, key: str) -> None:
    def requests() -> int:
        return int(client.info("commandstats")["cmdstat_dlock.acquire"]["calls"])

    with dlock.lock(client, key):
        pass
    before = requests()
    for options in ({"lease": 0.001}, {"lease": 0.001, "timeout": 0}, {"lease": 0.001, "timeout": 5}):
        with pytest.raises(dlock.Lost, match="longer") as raised:
            dlock.lock(client, key, **options).acquire()  # type: ignore[arg-type]
        assert raised.value.reason == "EXPIRED"
    assert requests() - before <= 30
    eventually(lambda: owner(client, key) is None)


def test_owner_enters_its_lock_again_and_each_hold_is_released(client: redis.Redis, key: str) -> None:
    locks = dlock.Locks(client)
    first, second = (locks.acquire(key, owner="pod-7", timeout=5) for _ in range(2))
    assert first.fence == second.fence and owner(client, key) == b"pod-7"
    first.release()
    assert owner(client, key) == b"pod-7"
    second.release()
    assert owner(client, key) is None


def test_same_owner_of_another_process_is_no_retry_of_its_request(
    client: redis.Redis, dlock_server: DlockServer, key: str
) -> None:
    another = dlock_server.client()
    held = [dlock.Locks(each).acquire(key, owner="pod-7", timeout=5) for each in (client, another)]
    held[0].release()
    assert owner(client, key) == b"pod-7"
    held[1].release()
    dlock.Locks(another).close()


def test_owners_that_wait_for_each_other_are_told_of_the_deadlock(client: redis.Redis, key: str) -> None:
    async def test(r: redis.asyncio.Redis) -> None:
        locks = dlock.aio.Locks(r)
        a, b = await locks.acquire(key + "a", owner="a"), await locks.acquire(key + "b", owner="b")
        waiting = asyncio.create_task(locks.acquire(key + "b", owner="a"))
        while not waiters(client, key + "b"):
            await asyncio.sleep(0.005)
        with pytest.raises(redis.ResponseError, match="^DEADLOCK"):
            await locks.acquire(key + "a", owner="b")
        await b.release()
        await (await waiting).release()
        await a.release()

    run(test, client.connection_pool.connection_kwargs["port"])


def test_max_hold_ends_a_renewed_lock_here_and_on_the_server(client: redis.Redis, key: str) -> None:
    held = dlock.Locks(client).acquire(key, lease=0.6, max_hold=1.5)
    begun = time.monotonic()
    assert held.lost.wait(10) and time.monotonic() - begun > 1.4
    assert held.reason == "MAXHOLD"
    with pytest.raises(dlock.Lost, match="max_hold"):
        held.release()
    eventually(lambda: owner(client, key) is None, 2)


def test_max_hold_bounds_the_lease_that_the_server_knows(client: redis.Redis, key: str) -> None:
    with dlock.lock(client, key, lease=30, max_hold=5) as held:
        assert 4 < held.remaining() <= 5 and lease_ms(client, key) < 5100
        held.extend(60)
        assert held.remaining() <= 5 and lease_ms(client, key) < 5100


def test_max_hold_shorter_than_the_way_is_lost_at_once(client: redis.Redis, key: str) -> None:
    client.execute_command("CLIENT PAUSE 100 WRITE")
    with pytest.raises(dlock.Lost) as raised:
        dlock.lock(client, key, max_hold=0.001).acquire()
    assert raised.value.reason == "MAXHOLD"
    eventually(lambda: not info(client, key))


@pytest.mark.parametrize(
    "make", [dlock.Locks, lambda client: dlock.lock(client, "k"), lambda c: dlock.Held(c, "k", {})]
)
def test_client_of_the_wrong_kind_is_refused(make: Any) -> None:
    with pytest.raises(TypeError, match="dlock.aio.Locks"):
        make(redis.asyncio.Redis(port=1))
    for client in (redis.Redis(port=1).pipeline(), "redis://:secret@localhost", None):
        with pytest.raises(TypeError, match=r"redis\.Redis or redis\.RedisCluster") as raised:
            make(client)
        assert "secret" not in str(raised.value)


def test_client_of_the_wrong_kind_is_refused_by_coroutines() -> None:
    with pytest.raises(TypeError, match=r"dlock\.Locks"):
        dlock.aio.Locks(redis.Redis(port=1))
    with pytest.raises(TypeError, match=r"redis\.asyncio\.Redis"):
        dlock.aio.Locks(redis.asyncio.Redis(port=1).pipeline())


def test_client_of_replicas_is_refused() -> None:
    with pytest.raises(TypeError, match="master_for"):
        dlock.Locks(Sentinel([("127.0.0.1", 1)]).slave_for("locks"))
    with pytest.raises(TypeError, match="master_for"):
        dlock.aio.Locks(AsyncSentinel([("127.0.0.1", 1)]).slave_for("locks"))


def test_setting_that_the_locks_cannot_use_is_refused_by_its_name() -> None:
    def connect(*_: Any) -> None: ...

    with pytest.raises(TypeError, match="redis_connect_func"):
        dlock.aio.Locks(redis.asyncio.Redis(port=1, redis_connect_func=connect))
    pool = redis.asyncio.ConnectionPool(port=1, encoder_class=type(redis.Redis(port=1).get_encoder()))
    with pytest.raises(TypeError, match="encoder_class"):
        dlock.aio.Locks(redis.asyncio.Redis(connection_pool=pool))


def test_own_class_and_settings_of_connections_are_used(dlock_server: DlockServer, key: str) -> None:
    made: List[str] = []

    class Named(Connection):
        def __init__(self, tag: str = "", **settings: Any) -> None:
            made.append(tag)
            super().__init__(**settings)  # type: ignore[no-untyped-call]

    pool = redis.ConnectionPool(connection_class=Named, port=dlock_server.port, tag="ours")
    with dlock.lock(redis.Redis(connection_pool=pool), key):
        assert set(made) == {"ours"}


def test_connections_have_a_name_unless_the_client_has_one(
    dlock_server: DlockServer, client: redis.Redis, key: str
) -> None:
    named = dlock_server.client(client_name="billing")
    with dlock.lock(client, key), dlock.lock(named, key + "2"):
        names = {each["name"] for each in client.client_list()}
        assert {"dlock", "billing"} <= names
    dlock.Locks(named).close()


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_lock_has_the_same_key_whatever_the_encoding_of_the_client(
    dlock_server: DlockServer, client: redis.Redis, key: str, encoding: str
) -> None:
    odd, name = dlock_server.client(encoding=encoding), f"café:{key}"
    with dlock.lock(odd, name) as held:
        assert owner(client, name) == held.owner.encode()
        assert held.query() > 0
    lock: Any = odd.lock(name, lock_class=dlock.Lock)
    with lock:
        assert (lock.locked(), lock.owned()) == (True, True)
        assert owner(client, name)

    async def test() -> None:
        r = redis.asyncio.Redis(port=dlock_server.port, encoding=encoding)
        async with dlock.aio.Locks(r).lock(name) as held:
            assert await held.query() > 0
        await dlock.aio.Locks(r).close()
        await r.aclose()

    asyncio.run(test())
    dlock.Locks(odd).close()


@pytest.mark.parametrize("key", [b"\xff\x00\xfe", "a b"])
def test_unusual_key_is_sent_as_it_is(client: redis.Redis, key: Any) -> None:
    with dlock.lock(client, key) as held:
        assert owner(client, key) == held.owner.encode() and held.query() > 0
