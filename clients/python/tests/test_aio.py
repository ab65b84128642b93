"""Locks of coroutines."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, List

import pytest
import redis
import redis.asyncio
from conftest import StandIn, eventually, owner, run, waiters

import dlock
from dlock.testing import DlockServer


async def eventually_async(condition: Callable[[], Any]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, eventually, condition)


def test_lock_in_async_with_block_is_held_and_released_at_its_end(
    dlock_server: DlockServer, client: redis.Redis, key: str
) -> None:
    async def test(r: redis.asyncio.Redis) -> None:
        async with dlock.aio.Locks(r).lock(key, timeout=5) as held:
            assert held.is_held and owner(client, key) == held.owner.encode()
            assert await held.query("SET", "{" + key + "}:data", "1") in (b"OK", True)
            await held.extend(60)
            assert 59 < held.remaining() < 60
            assert await dlock.aio.Locks(r).try_acquire(key) is None
        assert owner(client, key) is None

    run(test, dlock_server.port)


def test_timeout_raises_and_leaves_no_waiter(
    dlock_server: DlockServer, client: redis.Redis, other: dlock.Locks, key: str
) -> None:
    async def test(r: redis.asyncio.Redis) -> None:
        with pytest.raises(dlock.Timeout):
            await dlock.aio.Locks(r).acquire(key, timeout=0.05)
        await eventually_async(lambda: waiters(client, key) == 0)

    with other.lock(key):
        run(test, dlock_server.port)


def test_thousand_tasks_wait_on_two_connections_and_are_granted_in_order(
    dlock_server: DlockServer, client: redis.Redis, other: dlock.Locks, key: str
) -> None:
    async def test(_: redis.asyncio.Redis) -> None:
        named = redis.asyncio.Redis(port=dlock_server.port, client_name="tasks")
        locks = dlock.aio.Locks(named)
        fences: List[int] = []

        async def job() -> None:
            async with locks.lock(key) as held:
                fences.append(held.fence)

        blocker = other.acquire(key)
        tasks = [asyncio.create_task(job()) for _ in range(1000)]
        await eventually_async(lambda: waiters(client, key) == 1000)
        assert sum(each["name"] == "tasks" for each in client.client_list()) == 2
        blocker.release()
        await asyncio.gather(*tasks)
        assert len(fences) == 1000 and fences == sorted(fences)
        await locks.close()

    run(test, dlock_server.port)


def test_cancelled_wait_leaves_no_waiter_and_no_lock(
    dlock_server: DlockServer, client: redis.Redis, other: dlock.Locks, key: str
) -> None:
    async def test(r: redis.asyncio.Redis) -> None:
        locks = dlock.aio.Locks(r)
        blocker = other.acquire(key)
        tasks = [asyncio.create_task(locks.acquire(key)) for _ in range(100)]
        await eventually_async(lambda: waiters(client, key) == 100)
        for task in tasks:
            task.cancel()
        # Some of them are granted while they are cancelled.
        blocker.release()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        await eventually_async(lambda: waiters(client, key) == 0 and owner(client, key) is None)

    run(test, dlock_server.port)


def test_cancelled_body_releases_the_lock(dlock_server: DlockServer, client: redis.Redis, key: str) -> None:
    async def test(r: redis.asyncio.Redis) -> None:
        begun = asyncio.Event()

        async def job() -> None:
            async with dlock.aio.Locks(r).lock(key):
                begun.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(job())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert owner(client, key) is None

    run(test, dlock_server.port)


def test_blocked_event_loop_does_not_lose_the_lock(dlock_server: DlockServer, client: redis.Redis, key: str) -> None:
    async def test(r: redis.asyncio.Redis) -> None:
        async with dlock.aio.Locks(r).lock(key, lease=1.5) as held:
            time.sleep(2.5)
            assert held.is_held and owner(client, key) == held.owner.encode()

    run(test, dlock_server.port)


def test_loss_is_told_to_the_event_loop(dlock_server: DlockServer, client: redis.Redis, key: str) -> None:
    async def test(r: redis.asyncio.Redis) -> None:
        told: List[dlock.aio.Held] = []
        with pytest.raises(dlock.Lost):
            async with dlock.aio.Locks(r).lock(key, lease=3, on_lost=told.append) as held:
                client.delete(key)
                await asyncio.wait_for(held.lost.wait(), 10)
                await asyncio.sleep(0)
                assert told == [held]

    run(test, dlock_server.port)


def test_requests_that_begin_together_do_not_wait_for_each_others_replies() -> None:
    # The first one is granted, and nothing else has a reply.
    server = StandIn(ACQUIRE=[b"*4\r\n:7\r\n:1\r\n:30000\r\n:0", b""], RELEASE=[b":0"])

    async def test() -> None:
        locks = dlock.aio.Locks(redis.asyncio.Redis(port=server.port, protocol=2))
        await (await locks.acquire("first")).release()
        tasks = [asyncio.create_task(locks.acquire(f"lock:{number}")) for number in range(20)]
        end = time.monotonic() + 2.0  # the server is taken for dead later
        while server.count("ACQUIRE") <= len(tasks):
            assert time.monotonic() < end, server.got
            await asyncio.sleep(0.01)

    asyncio.run(test())
    server.close()


def test_loop_that_ended_leaves_its_lock_to_the_lease(dlock_server: DlockServer, client: redis.Redis, key: str) -> None:
    async def acquire() -> redis.asyncio.Redis:
        r = redis.asyncio.Redis(port=dlock_server.port)
        await dlock.aio.Locks(r).acquire(key, lease=1.5)
        return r

    r = asyncio.run(acquire())
    time.sleep(2.0)
    # The process still renews it.
    assert owner(client, key)
    asyncio.run(dlock.aio.Locks(r).close())
    eventually(lambda: owner(client, key) is None)
