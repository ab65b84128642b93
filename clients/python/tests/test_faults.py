"""Lost connections and replies, servers that hang or are restarted, and forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import List

import pytest
import redis
from conftest import Proxy, eventually, owner, waiters

import dlock
from dlock.testing import DlockServer


@pytest.fixture
def locks(proxy: Proxy) -> dlock.Locks:
    """Locks behind the proxy."""
    locks = dlock.Locks(redis.Redis(port=proxy.port))
    with locks.lock("lock:warm"):
        pass
    return locks


def test_refused_first_connection_fails_at_once() -> None:
    locks = dlock.Locks(redis.Redis(port=1))
    with pytest.raises(redis.ConnectionError):
        locks.acquire("lock:nowhere")


def test_acquire_whose_reply_is_lost_counts_once(
    locks: dlock.Locks, proxy: Proxy, client: redis.Redis, key: str
) -> None:
    proxy.cut_after = b"DLOCK.ACQUIRE"
    with locks.lock(key, timeout=5) as held:
        assert owner(client, key) == held.owner.encode()
    assert owner(client, key) is None
    proxy.cut_after = b"DLOCK.ACQUIRE"
    again = locks.try_acquire(key)
    assert again is not None
    again.release()


def test_release_whose_reply_is_lost_is_repeated_and_unconfirmed(
    locks: dlock.Locks, proxy: Proxy, client: redis.Redis, key: str
) -> None:
    held = locks.acquire(key)
    proxy.cut_after = b"DLOCK.RELEASE"
    with pytest.raises(dlock.Lost, match="no reply says"):
        held.release()
    assert owner(client, key) is None


def test_extend_whose_reply_is_lost_is_repeated(locks: dlock.Locks, proxy: Proxy, key: str) -> None:
    with locks.lock(key, lease=5) as held:
        proxy.cut_after = b"DLOCK.EXTEND"
        held.extend(20)
        assert held.remaining() > 19


def test_query_whose_reply_is_lost_is_not_repeated_by_the_locks(proxy: Proxy, key: str) -> None:
    once = redis.Redis(port=proxy.port, retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0))
    with dlock.lock(once, key) as held:
        proxy.cut_after = b"DLOCK.GUARD"
        with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
            held.query("INCR", "{" + key + "}:count")
        assert held.query("GET", "{" + key + "}:count") == b"1"


def test_waiting_requests_survive_cut_connections(
    locks: dlock.Locks, proxy: Proxy, client: redis.Redis, other: dlock.Locks, key: str
) -> None:
    fences: List[int] = []

    def wait() -> None:
        with locks.lock(key) as held:
            fences.append(held.fence)

    threads = [threading.Thread(target=wait) for _ in range(10)]
    with other.lock(key):
        for thread in threads:
            thread.start()
        eventually(lambda: waiters(client, key) == 10)
        for _ in range(3):
            proxy.cut()
            time.sleep(0.1)
    for thread in threads:
        thread.join(10)
    assert len(fences) == 10
    assert owner(client, key) is None


def test_answer_whose_reply_is_lost_is_read_again(
    locks: dlock.Locks, proxy: Proxy, client: redis.Redis, other: dlock.Locks, key: str
) -> None:
    granted: List[float] = []

    def wait() -> None:
        with locks.lock(key) as held:
            granted.append(held.remaining())

    with other.lock(key):
        thread = threading.Thread(target=wait)
        thread.start()
        eventually(lambda: waiters(client, key) == 1)
        proxy.cut_after = b"DLOCK.GRANTS"
        time.sleep(2.5)
    thread.join(10)
    assert granted and owner(client, key) is None


def test_held_lock_survives_cut_connections(locks: dlock.Locks, proxy: Proxy, client: redis.Redis, key: str) -> None:
    with locks.lock(key, lease=1.5) as held:
        for _ in range(10):
            proxy.cut()
            time.sleep(0.2)
        assert held.is_held and owner(client, key)


def test_lock_is_lost_at_its_deadline_when_the_server_is_unreachable(
    locks: dlock.Locks, proxy: Proxy, key: str
) -> None:
    held = locks.acquire(key, lease=0.6)
    proxy.is_refusing = True
    proxy.cut()
    start, left = time.monotonic(), held.remaining()
    assert held.lost.wait(5)
    assert left <= time.monotonic() - start < left + 1
    with pytest.raises(dlock.Lost):
        held.release()


def test_lock_is_lost_at_its_deadline_when_the_server_hangs(own_server: DlockServer, key: str) -> None:
    locks = dlock.Locks(own_server.client())
    held = locks.acquire(key, lease=0.6)
    own_server.process.send_signal(signal.SIGSTOP)
    try:
        start, left = time.monotonic(), held.remaining()
        assert held.lost.wait(5)
        assert left <= time.monotonic() - start < left + 1
        start = time.monotonic()
        with pytest.raises(dlock.Timeout):
            locks.acquire("lock:other", timeout=0.3)
        assert 0.3 <= time.monotonic() - start < 1.3
    finally:
        own_server.process.send_signal(signal.SIGCONT)
    # Late copies of the requests leave nothing behind.
    client = own_server.client()
    eventually(lambda: owner(client, key) is None and owner(client, "lock:other") is None)


def test_restarted_server_is_noticed_and_waiters_ask_again(own_server: DlockServer, key: str) -> None:
    locks, client = dlock.Locks(own_server.client()), own_server.client()
    held = locks.acquire(key, lease=1)
    fences: List[int] = []
    thread = threading.Thread(target=lambda: fences.append(locks.acquire(key).fence))
    thread.start()
    eventually(lambda: waiters(client, key) == 1)
    own_server.stop()
    time.sleep(0.2)
    own_server.start()
    # The server has forgotten both: the waiter holds the lock now.
    thread.join(10)
    assert fences and held.lost.wait(10)
    locks.close()


def test_release_waits_for_a_server_that_is_away_for_a_moment(
    locks: dlock.Locks, proxy: Proxy, client: redis.Redis, key: str
) -> None:
    held = locks.acquire(key, lease=10)
    proxy.is_refusing = True
    proxy.cut()
    threading.Timer(0.3, lambda: setattr(proxy, "is_refusing", False)).start()
    try:
        held.release()
    except dlock.Lost:
        # It is not known whether the first copy arrived.
        pass
    assert owner(client, key) is None


def test_child_after_a_fork_holds_nothing_and_has_its_own_connections(client: redis.Redis, key: str) -> None:
    locks = dlock.Locks(client)
    held = locks.acquire(key)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if not held.is_held and locks.try_acquire(key) is None:
                with locks.lock(key + ":child", timeout=5):
                    status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert held.is_held and owner(client, key) == held.owner.encode()
    held.release()


def test_release_in_a_child_does_not_release_the_lock_of_its_parent(client: redis.Redis, key: str) -> None:
    with dlock.lock(client, key) as held:
        child = os.fork()
        if child == 0:
            try:
                held.release()
            except dlock.Lost:
                os._exit(7)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WEXITSTATUS(status) == 7
        assert owner(client, key) == held.owner.encode()


def test_process_that_ends_gives_back_what_it_no_longer_waits_for(
    dlock_server: DlockServer, client: redis.Redis, other: dlock.Locks, key: str
) -> None:
    program = f"""
import dlock, redis
try:
    dlock.Locks(redis.Redis(port={dlock_server.port})).acquire({key!r}, timeout=0.1)
except dlock.Timeout:
    print("ended")
"""
    with other.lock(key):
        start = time.monotonic()
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
        assert (done.stdout, done.stderr) == ("ended\n", "") and time.monotonic() - start < 15
        assert waiters(client, key) == 0


def test_discarded_client_ends_its_threads_and_connections(
    client: redis.Redis, dlock_server: DlockServer, key: str
) -> None:
    named = dlock_server.client(client_name="discarded")
    with dlock.lock(named, key):
        pass
    del named
    eventually(lambda: not any(each["name"] == "discarded" for each in client.client_list()))
