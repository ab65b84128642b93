"""A plugin for pytest, with which redis-py's own tests of its locks run on the locks of DLOCK: see clients/test.

The key of a lock has no string and no TTL in Redis. So where a test reads them, it gets what DLOCK has instead.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any, Dict, List

import pytest
import redis
import redis.asyncio
import redis.asyncio.lock
import redis.lock
from conftest import lease_of

import dlock
from dlock._cores import core_of
from dlock._hold import Stage
from dlock._sync import blocking
from dlock.testing import DlockServer, find_module, find_server

#: Tests that fail, and why. One that passes, or is not there, fails the run.
LEFT_OUT: Dict[str, str] = {
    "test_lock_token": "a token is only the first part of the owner, so that two with the same one exclude each other",
    "test_lock_token_thread_local_false": "as test_lock_token",
    "test_blocking_timeout": "counts the sleeps between two attempts, but a lock of DLOCK waits in the server's queue",
    "test_context_manager_blocking_timeout": "as test_blocking_timeout",
}

_servers: List[DlockServer] = []


def pytest_configure(config: Any) -> None:
    program, module = find_server(), find_module()
    if program is None or module is None:
        raise pytest.UsageError("needs a server, and the module in DLOCK_MODULE")
    _servers.append(DlockServer(program, module))
    config.option.redis_url = f"{_servers[0].url}/0"


def pytest_unconfigure() -> None:
    while _servers:
        _servers.pop().close()


def pytest_collection_modifyitems(items: List[Any]) -> None:
    unknown = LEFT_OUT.keys() - {item.originalname for item in items}
    if unknown:
        raise pytest.UsageError(f"redis-py has no tests {sorted(unknown)}")
    for item in items:
        if item.originalname in LEFT_OUT:
            reason = LEFT_OUT[item.originalname]
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True, raises=AssertionError))


@pytest.fixture(autouse=True)
def _locks_of_dlock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    is_async = request.module.Lock is redis.asyncio.lock.Lock
    assert is_async or request.module.Lock is redis.lock.Lock
    monkeypatch.setattr(request.module, "Lock", dlock.aio.Lock if is_async else dlock.Lock)
    client = redis.asyncio.Redis if is_async else redis.Redis
    for read in (get, ttl, pttl, pexpire):
        monkeypatch.setattr(client, read.__name__, read if is_async else blocking(read))


async def get(client: Any, key: str) -> Any:
    """The owner instead of the token."""
    return await _done(client.execute_command("DLOCK.OWNER", key))


async def pttl(client: Any, key: str) -> int:
    """What is left of the lease. If it is renewed, the lock does not end by itself, as a key without a TTL."""
    lease_ms = lease_of(await _done(client.execute_command("DLOCK.INFO", key)))
    holds = core_of(client, isinstance(client, redis.asyncio.Redis)).table.values()
    is_renewed = any(hold.key == key and hold.stage is Stage.HELD and hold.terms.renew for hold in holds)
    return -1 if is_renewed else lease_ms


async def ttl(client: Any, key: str) -> int:
    lease_ms = await pttl(client, key)
    return lease_ms if lease_ms < 0 else round(lease_ms / 1000)


async def pexpire(client: Any, key: str, ms: int) -> bool:
    """No command makes a lease shorter: the time passes after which this is left of it."""
    pause = asyncio.sleep if isinstance(client, redis.asyncio.Redis) else time.sleep
    await _done(pause((await pttl(client, key) - ms) / 1000))
    return True


async def _done(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
