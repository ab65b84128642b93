"""Locks of threads."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any, List

import pytest
import redis
from conftest import eventually, owner, waiters

import dlock
from dlock.testing import DlockServer


def test_lock_in_with_block_is_held_and_released_at_its_end(client: redis.Redis, key: str) -> None:
    with dlock.lock(client, key) as held:
        assert held.is_held
        assert 29 < held.remaining() < 30
        assert owner(client, key) == held.owner.encode()
    assert owner(client, key) is None
    assert not held.is_held
    assert not held.lost.is_set()


def test_lock_that_was_released_cannot_be_entered_again(client: redis.Redis, key: str) -> None:
    lock = dlock.lock(client, key)
    with lock:
        pass
    with pytest.raises(dlock.Lost, match="released"), lock:
        pytest.fail("not protected")


def test_fence_of_a_later_grant_is_larger(client: redis.Redis, key: str) -> None:
    with dlock.lock(client, key) as first:
        pass
    with dlock.lock(client, key) as second:
        assert second.fence > first.fence


def test_exception_in_with_block_releases_the_lock_and_is_raised(client: redis.Redis, key: str) -> None:
    with pytest.raises(KeyError), dlock.lock(client, key):
        raise KeyError
    assert owner(client, key) is None


def test_try_acquire_of_a_held_lock_returns_none(client: redis.Redis, other: dlock.Locks, key: str) -> None:
    locks = dlock.Locks(client)
    with other.lock(key):
        assert locks.try_acquire(key) is None
        with pytest.raises(dlock.Timeout):
            locks.acquire(key, timeout=0)
    held = locks.try_acquire(key)
    assert held is not None
    held.release()


def test_acquire_after_its_timeout_raises_and_leaves_no_waiter(
    client: redis.Redis, other: dlock.Locks, key: str
) -> None:
    with other.lock(key):
        with pytest.raises(dlock.Timeout, match="others hold it"):
            dlock.Locks(client).acquire(key, timeout=0.05)
        eventually(lambda: waiters(client, key) == 0)


def test_threads_that_wait_are_granted_in_order(client: redis.Redis, other: dlock.Locks, key: str) -> None:
    fences: List[int] = []

    def wait() -> None:
        with dlock.lock(client, key) as held:
            fences.append(held.fence)

    threads = [threading.Thread(target=wait) for _ in range(20)]
    with other.lock(key):
        for number, thread in enumerate(threads):
            thread.start()
            eventually(lambda: waiters(client, key) == number + 1)  # noqa: B023
    for thread in threads:
        thread.join()
    assert fences == sorted(fences) and len(fences) == 20


def test_lease_is_renewed_until_the_release(client: redis.Redis, key: str) -> None:
    held = dlock.Locks(client).acquire(key, lease=1.5)
    time.sleep(2.0)
    assert held.is_held and owner(client, key) == held.owner.encode()
    held.release()


def test_lease_without_renewal_ends(client: redis.Redis, key: str) -> None:
    held = dlock.Locks(client).acquire(key, lease=0.2, renew=False)
    assert held.lost.wait(10)
    assert held.remaining() == 0
    with pytest.raises(dlock.Lost, match="not renewed"):
        held.release()


def test_lost_lock_is_told_by_event_and_callback_and_raised_at_the_end(client: redis.Redis, key: str) -> None:
    told: List[dlock.Held] = []
    with pytest.raises(dlock.Lost, match="nobody holds it"):
        with dlock.lock(client, key, lease=3, on_lost=told.append) as held:
            client.delete(key)
            assert held.lost.wait(10)
            assert not held.is_held
            eventually(lambda: told == [held])


def test_release_of_a_deleted_lock_raises_lost(client: redis.Redis, key: str) -> None:
    held = dlock.Locks(client).acquire(key)
    client.delete(key)
    with pytest.raises(dlock.Lost):
        held.release()
    with pytest.raises(dlock.Lost):
        held.release()


def test_loss_does_not_replace_an_exception_of_the_block(client: redis.Redis, key: str) -> None:
    with pytest.raises(KeyError), dlock.lock(client, key):
        client.delete(key)
        raise KeyError


def test_extend_makes_the_lease_longer_and_never_shorter(client: redis.Redis, key: str) -> None:
    with dlock.lock(client, key, lease=10) as held:
        held.extend(60)
        assert 59 < held.remaining() < 60
        held.extend(5)
        assert held.remaining() > 59


def test_extend_beyond_the_longest_lease_raises_and_keeps_the_lock(client: redis.Redis, key: str) -> None:
    with dlock.lock(client, key, lease=1.5) as held:
        with pytest.raises(redis.ResponseError, match="^ERR"):
            held.extend(1e6)
        time.sleep(2.0)
        assert held.is_held


def test_query_writes_while_the_lock_is_held_and_not_afterwards(client: redis.Redis, key: str) -> None:
    held = dlock.Locks(client).acquire(key)
    assert held.query("SET", "{" + key + "}:data", "1") in (b"OK", True)
    client.delete(key)
    with pytest.raises(dlock.Lost):
        held.query("SET", "{" + key + "}:data", "2")
    assert held.lost.is_set()
    assert client.get("{" + key + "}:data") == b"1"


def test_shared_locks_and_limits_admit_several_holders(client: redis.Redis, key: str) -> None:
    locks = dlock.Locks(client)
    with locks.lock(key, shared=True), locks.lock(key, shared=True):
        assert locks.try_acquire(key) is None
    with locks.lock(key, limit=2), locks.lock(key, limit=2):
        assert locks.try_acquire(key, limit=2) is None


def test_error_of_the_server_is_raised_with_its_first_word(client: redis.Redis, key: str) -> None:
    client.set(key, "text")
    with pytest.raises(redis.ResponseError, match="^WRONGTYPE"):
        dlock.Locks(client).acquire(key)
    with pytest.raises(redis.ResponseError, match="^ERR"):
        dlock.Locks(client).acquire("lock:long", lease=1e9)


def test_user_without_inboxes_is_told_so_when_it_has_to_wait(
    client: redis.Redis, other: dlock.Locks, dlock_server: DlockServer, key: str
) -> None:
    client.execute_command("ACL SETUSER limited on >pw ~* -@all +dlock.acquire +dlock.release +dlock.extend")
    limited = dlock_server.client(username="limited", password="pw")
    locks = dlock.Locks(limited)
    with locks.lock(key):
        pass
    with other.lock(key), pytest.raises(redis.ResponseError, match="^NOPERM"):
        locks.acquire(key, timeout=5)
    locks.close()


def test_rights_in_the_readme_are_enough(
    client: redis.Redis, other: dlock.Locks, dlock_server: DlockServer, key: str
) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    commands = sorted(set(re.findall(r"\+dlock\.\w+", readme)))
    assert len(commands) == 6
    client.execute_command("ACL SETUSER app on >pw ~* -@all +set", *commands)
    limited = dlock_server.client(username="app", password="pw")
    held = other.acquire(key)
    threading.Timer(0.2, held.release).start()
    with dlock.lock(limited, key, timeout=10) as waited:
        waited.extend(60)
        assert waited.query("SET", key + ":data", "1")
    lock: Any = limited.lock(key, timeout=10, lock_class=dlock.Lock)
    with lock:
        assert lock.owned() and lock.locked() and lock.extend(5)
    dlock.Locks(limited).close()


def test_interrupted_wait_leaves_no_waiter(client: redis.Redis, other: dlock.Locks, key: str) -> None:
    def interrupt() -> None:
        eventually(lambda: waiters(client, key) == 1)
        signal.pthread_kill(main, signal.SIGINT)

    # Ignored if a shell has started the tests in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.get_ident()
    with other.lock(key):
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            dlock.Locks(client).acquire(key)
        eventually(lambda: waiters(client, key) == 0)


def test_waiting_threads_share_two_connections_that_end_afterwards(
    client: redis.Redis, other: dlock.Locks, dlock_server: DlockServer, key: str
) -> None:
    named = dlock_server.client(client_name="threads")
    threads = [threading.Thread(target=lambda: dlock.Locks(named).acquire(key).release()) for _ in range(100)]
    with other.lock(key):
        for thread in threads:
            thread.start()
        eventually(lambda: waiters(client, key) == 100)
        assert _connections(client, "threads") == 2
    for thread in threads:
        thread.join()
    # The reader goes when nothing waits any more, and the rest with the locks.
    eventually(lambda: _connections(client, "threads") == 1)
    dlock.Locks(named).close()
    eventually(lambda: _connections(client, "threads") == 0)


def test_close_releases_what_is_under_way_and_ends_the_inbox(client: redis.Redis, other: dlock.Locks, key: str) -> None:
    def inboxes() -> int:
        return int(client.info("dlock")["dlock_inboxes"])

    locks = dlock.Locks(client)
    with other.lock(key), pytest.raises(dlock.Timeout):
        locks.acquire(key, timeout=0.05)
    before = inboxes()
    locks.close()
    eventually(lambda: inboxes() < before, 4.0)
    with locks.lock(key):
        pass


def test_close_ends_waiting_and_held_locks(client: redis.Redis, other: dlock.Locks, key: str) -> None:
    locks = dlock.Locks(client)
    held = locks.acquire(key + ":held", lease=0.5)
    errors: List[BaseException] = []

    def wait() -> None:
        try:
            locks.acquire(key)
        except dlock.Lost as error:
            errors.append(error)

    with other.lock(key):
        thread = threading.Thread(target=wait)
        thread.start()
        eventually(lambda: waiters(client, key) == 1)
        locks.close()
        thread.join(5)
        assert "closed" in str(errors[0])
        assert waiters(client, key) == 0
    with pytest.raises(dlock.Lost, match="closed"):
        held.release()
    eventually(lambda: owner(client, key + ":held") is None)


def test_close_after_lost_connection_withdraws_what_waits(
    client: redis.Redis, other: dlock.Locks, dlock_server: DlockServer, key: str
) -> None:
    named = dlock_server.client(client_name="closing")
    locks = dlock.Locks(named)

    def wait() -> None:
        with contextlib.suppress(dlock.Lost):
            locks.acquire(key)

    thread = threading.Thread(target=wait)
    with other.lock(key):
        thread.start()
        eventually(lambda: waiters(client, key) == 1)
        for connection in client.client_list():
            if connection["name"] == "closing" and connection["cmd"] != "dlock.grants":
                client.client_kill(connection["addr"])
        locks.close()
        assert waiters(client, key) == 0
    thread.join()


def test_close_while_lock_is_granted_leaves_it_free_or_held_by_its_caller(
    client: redis.Redis, other: dlock.Locks, dlock_server: DlockServer, key: str
) -> None:
    def close_around_grant(contended: str, pause: float) -> None:
        locks, granted = dlock.Locks(dlock_server.client()), []

        def wait() -> None:
            with contextlib.suppress(dlock.Lost):
                granted.append(locks.acquire(contended))

        held = other.acquire(contended)
        threads = [threading.Thread(target=wait), threading.Thread(target=held.release)]
        threads[0].start()
        eventually(lambda: waiters(client, contended) == 1)
        threads[1].start()
        time.sleep(pause)
        locks.close()
        for thread in threads:
            thread.join()
        assert granted or owner(client, contended) is None

    for attempt in range(20):
        close_around_grant(f"{key}:{attempt}", attempt * 0.00005)


def _connections(client: redis.Redis, name: str) -> int:
    return sum(each["name"] == name for each in client.client_list())
