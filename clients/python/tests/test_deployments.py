"""Locks on a cluster, and on the primary that a Sentinel names."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest
import redis
from conftest import Proxy, eventually, waiters
from redis.asyncio.cluster import RedisCluster as AsyncCluster
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot
from redis.sentinel import Sentinel

import dlock
from dlock.testing import DlockServer, free_port

SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))


@pytest.fixture(scope="module")
def cluster(dlock_server: DlockServer, request: pytest.FixtureRequest) -> List[DlockServer]:
    """Three primaries."""
    servers: List[DlockServer] = []
    for first, last in SLOTS:
        servers.append(dlock_server.another("--cluster-enabled", "yes", "--cluster-node-timeout", "2000"))
        request.addfinalizer(servers[-1].close)
        servers[-1].client().execute_command("CLUSTER ADDSLOTSRANGE", first, last)
        servers[-1].client().execute_command("CLUSTER MEET", "127.0.0.1", servers[0].port)
    for server in servers:
        eventually(lambda: server.client().execute_command("CLUSTER INFO")["cluster_state"] == "ok", 30)  # noqa: B023
        eventually(lambda: len(server.client().execute_command("CLUSTER SLOTS")) == 3)  # noqa: B023
    return servers


def test_locks_of_a_cluster_are_acquired_on_the_nodes_of_their_keys(cluster: List[DlockServer]) -> None:
    one = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", cluster[0].port)])
    two = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", cluster[1].port)])
    locks, other = dlock.Locks(one), dlock.Locks(two)
    keys = [f"lock:{number}" for number in range(30)]
    assert {sum(key_slot(key.encode()) > last for _, last in SLOTS) for key in keys} == {0, 1, 2}
    blockers = [other.acquire(key) for key in keys]
    held: List[dlock.Held] = []
    threads = [threading.Thread(target=lambda key=key: held.append(locks.acquire(key, timeout=10))) for key in keys]
    for thread in threads:
        thread.start()
    for blocker in blockers:
        blocker.release()
    for thread in threads:
        thread.join()
    assert sorted(str(each.key) for each in held) == sorted(keys)
    for each in held:
        each.extend(40)
        assert each.query("SET", "{" + str(each.key) + "}:data", "1")
        each.release()
    locks.close()
    other.close()


def test_coroutines_lock_on_a_cluster(cluster: List[DlockServer]) -> None:
    async def main() -> None:
        client = await AsyncCluster(host="127.0.0.1", port=cluster[2].port).initialize()
        locks = dlock.aio.Locks(client)

        async def job(number: int) -> int:
            async with locks.lock(f"lock:{number % 10}", timeout=10) as held:
                await held.query("SET", "{" + str(held.key) + "}:data", "1")
                return held.fence

        assert len(await asyncio.gather(*(job(number) for number in range(100)))) == 100
        await locks.close()
        await client.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_query_follows_a_slot_that_moves(cluster: List[DlockServer], kind: str) -> None:
    """The client is not told that the slot has moved, and the locks know it."""
    key = "lock:followed"
    slot = key_slot(key.encode())
    index = sum(slot > last for _, last in SLOTS)
    source, target = cluster[index].client(), cluster[(index + 1) % 3].client()
    ids = [client.execute_command("CLUSTER MYID").decode() for client in (source, target)]

    def move() -> None:
        target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
        source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
        port = target.connection_pool.connection_kwargs["port"]
        source.execute_command("MIGRATE", "127.0.0.1", port, key, 0, 5000)

    def finish(node: str) -> None:
        for client in (target, source):
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", node)

    async def test() -> None:
        client = await AsyncCluster(host="127.0.0.1", port=cluster[0].port).initialize()
        async with dlock.aio.Locks(client).lock(key, lease=60) as held:
            assert await held.query() > 0
            move()
            assert await held.query() > 0
            finish(ids[1])
            assert await held.query("SET", "{" + key + "}:data", "1")
        await dlock.aio.Locks(client).close()
        await client.aclose()

    if kind == "asyncio":
        asyncio.run(test())
    else:
        locks = dlock.Locks(RedisCluster(host="127.0.0.1", port=cluster[0].port))
        with locks.lock(key, lease=60) as held:
            assert held.query() > 0
            move()
            assert held.query() > 0
            finish(ids[1])
            assert held.query("SET", "{" + key + "}:data", "1")
        locks.close()
    for name in (key, "{" + key + "}:data"):
        target.delete(name)
    finish(ids[0])


def test_nodes_are_reached_where_the_client_remaps_them(cluster: List[DlockServer]) -> None:
    proxies = {server.port: Proxy(server.port) for server in cluster}
    remapped: List[Any] = []

    def remap(address: Any) -> Any:
        host, port = address
        remapped.append(port)
        return (host, proxies[port].port) if port in proxies else address

    locks = dlock.Locks(RedisCluster(host="127.0.0.1", port=proxies[cluster[0].port].port, address_remap=remap))
    for number in range(20):
        with locks.lock(f"lock:{number}", timeout=10) as held:
            pass
        assert held.link.node[1] in {proxy.port for proxy in proxies.values()}
    locks.close()
    for proxy in proxies.values():
        proxy.close()


def test_lock_survives_and_waiter_follows_a_slot_that_moves(cluster: List[DlockServer]) -> None:
    key = "lock:moving"
    slot = key_slot(key.encode())
    index = sum(slot > last for _, last in SLOTS)
    source, target = cluster[index].client(), cluster[(index + 1) % 3].client()
    locks = dlock.Locks(RedisCluster(host="127.0.0.1", port=cluster[0].port))
    other = dlock.Locks(RedisCluster(host="127.0.0.1", port=cluster[1].port))
    held = other.acquire(key, lease=2)
    granted: List[dlock.Held] = []
    thread = threading.Thread(target=lambda: granted.append(locks.acquire(key, timeout=20)))
    thread.start()
    eventually(lambda: waiters(source, key) == 1)
    ids = [client.execute_command("CLUSTER MYID").decode() for client in (source, target)]
    target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
    source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
    port = target.connection_pool.connection_kwargs["port"]
    source.execute_command("MIGRATE", "127.0.0.1", port, key, 0, 5000)
    # Until the slot has moved, the server asks clients to ask the other one.
    held.extend(2)
    assert held.query() > 0
    for client in (target, source):
        client.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[1])
    assert held.query() > 0
    held.extend(5)
    held.release()
    thread.join(20)
    assert len(granted) == 1
    granted[0].release()
    for client in (source, target):
        client.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[0])


def test_client_of_one_server_is_told_that_it_needs_one_for_clusters(cluster: List[DlockServer]) -> None:
    locks = dlock.Locks(cluster[0].client())
    with pytest.raises(redis.ResponseError, match="^MOVED.*client for clusters"):
        locks.acquire(next(key for key in map(str, range(100)) if key_slot(key.encode()) > SLOTS[0][1]), timeout=5)


@pytest.fixture
def sentinel(dlock_server: DlockServer, tmp_path: Path) -> Iterator[int]:
    """A primary and a replica. The port of their Sentinel."""
    primary = dlock_server.another()
    replica = dlock_server.another("--replicaof", "127.0.0.1", str(primary.port))
    port = free_port()
    configuration = tmp_path / "sentinel.conf"
    configuration.write_text(f"port {port}\nsentinel monitor locks 127.0.0.1 {primary.port} 1\n")
    command = [dlock_server.program, str(configuration), "--sentinel"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = redis.Redis(port=port)
    eventually(_succeeds(client.ping))
    eventually(lambda: client.sentinel_slaves("locks"), 30)
    eventually(lambda: replica.client().info("replication")["master_link_status"] == "up", 30)
    yield port
    process.kill()
    process.wait()
    primary.close()
    replica.close()


def _succeeds(command: Callable[[], Any]) -> Callable[[], Any]:
    def attempt() -> Any:
        try:
            return command()
        except redis.RedisError:
            return None

    return attempt


def test_held_and_waiting_locks_survive_a_failover(sentinel: int) -> None:
    def connect() -> redis.Redis:
        client: redis.Redis = Sentinel([("127.0.0.1", sentinel)]).master_for("locks")
        return client

    locks, other = dlock.Locks(connect()), dlock.Locks(connect())
    held = other.acquire("orders", lease=10)
    granted: List[dlock.Held] = []
    thread = threading.Thread(target=lambda: granted.append(locks.acquire("orders", timeout=30)))
    thread.start()
    eventually(lambda: waiters(connect(), "orders") == 1)
    manager = redis.Redis(port=sentinel)
    before = manager.sentinel_get_master_addr_by_name("locks")
    eventually(_succeeds(lambda: manager.execute_command("SENTINEL FAILOVER", "locks")), 30)
    eventually(lambda: manager.sentinel_get_master_addr_by_name("locks") != before, 30)
    held.extend(10)
    held.release()
    thread.join(30)
    assert len(granted) == 1
    granted[0].release()
    locks.close()
    other.close()


def test_coroutines_lock_on_the_primary_of_a_sentinel(sentinel: int) -> None:
    async def main() -> None:
        client = AsyncSentinel([("127.0.0.1", sentinel)]).master_for("locks")
        async with dlock.aio.Locks(client).lock("orders", timeout=10) as held:
            assert await held.query("SET", "{orders}:data", "1")
        await dlock.aio.Locks(client).close()
        await client.aclose()

    asyncio.run(main())
