"""What must not hang, let two in, or stop the renewal of other locks."""

from __future__ import annotations

import os
import signal
import socket
import threading
from math import inf
from typing import Any, List, Tuple

import pytest
import redis
from conftest import eventually, lease_ms, owner
from redis.credentials import CredentialProvider
from redis.exceptions import LockError

import dlock
from dlock._hold import Stage
from dlock.testing import DlockServer


def test_failing_credential_provider_fails_an_acquisition_and_nothing_later(
    dlock_server: DlockServer, key: str
) -> None:
    class Provider(CredentialProvider):
        fails = True

        def get_credentials(self) -> Tuple[str, str]:
            if self.fails:
                raise LookupError("the identity service is down")
            return ("default", "")

    dlock_server.client().execute_command("ACL SETUSER default nopass")
    provider = Provider()
    locks = dlock.Locks(dlock_server.client(credential_provider=provider))
    with pytest.raises(LookupError):
        locks.acquire(key, timeout=5)
    provider.fails = False
    with locks.lock(key, timeout=5):
        pass
    locks.close()


def test_reply_of_an_unexpected_form_fails_its_request_only(key: str) -> None:
    replies = [b"+OK\r\n", b"*4\r\n:7\r\n:1\r\n:30000\r\n:0\r\n", b"+OK\r\n", b":0\r\n"]
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        while data := connection.recv(65536):
            for command in data.split(b"*")[1:]:
                connection.sendall((replies.pop(0) if replies else b":0\r\n") if b"DLOCK" in command else b"+OK\r\n")

    threading.Thread(target=serve, daemon=True).start()
    locks = dlock.Locks(redis.Redis(port=listener.getsockname()[1]))
    with pytest.raises(redis.ResponseError, match="unexpected reply"):
        locks.acquire(key, timeout=5)
    held = locks.acquire(key, timeout=5)
    with pytest.raises(redis.ResponseError, match="unexpected reply"):
        held.extend(40)
    assert held.is_held
    listener.close()


def test_lock_made_before_a_fork_lets_only_one_process_in(client: redis.Redis, key: str) -> None:
    lock = dlock.lock(client, key, timeout=0)
    child = os.fork()
    if child == 0:
        try:
            lock.acquire()
        finally:
            os._exit(lock.is_held)
    _, status = os.waitpid(child, 0)
    assert os.WEXITSTATUS(status) == 1
    with pytest.raises(dlock.Timeout):
        lock.acquire()


def test_lock_is_acquired_and_entered_once(client: redis.Redis, other: dlock.Locks, key: str) -> None:
    lock = dlock.lock(client, key, timeout=0)
    with lock:
        with pytest.raises(LockError, match="once"), lock:
            pytest.fail("two are in")
        assert lock.is_held
        with pytest.raises(LockError, match="once"):
            lock.acquire()
        assert lock.is_held
    with other.lock(key), pytest.raises(LockError):
        lock.acquire()
    with dlock.Locks(client).acquire(key) as held:
        assert held.is_held


def test_lock_made_before_close_is_not_waited_for(client: redis.Redis, key: str) -> None:
    locks = dlock.Locks(client)
    lock = locks.lock(key)
    locks.close()
    with pytest.raises(dlock.Lost, match="closed"):
        lock.acquire()


def test_close_tells_that_held_locks_are_lost(client: redis.Redis, key: str) -> None:
    locks, told = dlock.Locks(client), threading.Event()
    held = locks.acquire(key, on_lost=lambda _: told.set())
    locks.close()
    assert held.lost.wait(5) and told.wait(5)


def test_extend_beside_a_renewal_ends_with_its_own_reply(
    dlock_server: DlockServer, client: redis.Redis, key: str
) -> None:
    with dlock.lock(client, key, lease=20) as held:
        dlock_server.client().execute_command("CLIENT PAUSE 300 WRITE")
        # As the timer does.
        held.core.submit(held)
        eventually(lambda: held.due_at == inf)
        held.extend(60)
        assert held.remaining() > 50
        assert lease_ms(client, key) > 50_000


@pytest.mark.parametrize("moment", ["before", "after"])
def test_interrupted_release_goes_on(
    client: redis.Redis, key: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = dlock.Locks(client).acquire(key, renew=False)
    send_directly = held.link.send_directly

    def interrupted(*arguments: Any) -> bool:
        if moment == "after":
            send_directly(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(held.link, "send_directly", interrupted)
    with pytest.raises(KeyboardInterrupt):
        held.release()
    eventually(lambda: owner(client, key) is None and held.stage is Stage.OVER)


# An interrupt can also hit a destructor, or a coroutine that has not begun.
@pytest.mark.filterwarnings("ignore")
def test_interrupts_at_any_moment_leave_no_lock_and_stop_nothing(client: redis.Redis, key: str) -> None:
    locks, before = dlock.Locks(client), signal.getsignal(signal.SIGALRM)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    locks.acquire(key).release()
    core = locks.lock(key).core
    interrupted = 0
    signal.signal(signal.SIGALRM, interrupt)
    try:
        for number in range(160):
            lock = locks.lock(key, timeout=10)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.00002 * (number % 40 + 1))
                for _ in range(100):
                    lock = locks.lock(key, timeout=10)
                    lock.acquire()
                    lock.release()
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if lock.is_held:
                lock.release()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 100
    eventually(lambda: not core.table and owner(client, key) is None)
    locks.acquire(key, timeout=10).release()


def test_thread_that_hangs_while_it_sends_delays_no_renewal_for_long(
    dlock_server: DlockServer, client: redis.Redis, key: str
) -> None:
    locks = dlock.Locks(client)
    held = locks.acquire(key, lease=15)
    is_free, begun = threading.Event(), threading.Event()

    def hang(*_: Any) -> None:
        begun.set()
        is_free.wait(30)

    before = signal.signal(signal.SIGALRM, hang)
    released: List[bool] = []

    def release() -> None:
        begun.wait(10)
        held.release()
        released.append(True)
        is_free.set()

    thread = threading.Thread(target=release)
    thread.start()
    try:
        dlock_server.client().execute_command("CLIENT PAUSE 300 WRITE")
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        locks.acquire(key + ":2", timeout=20).release()
    finally:
        is_free.set()
        signal.signal(signal.SIGALRM, before)
        thread.join()
    assert begun.is_set() and released


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_on_lost_whose_thread_does_not_start_stops_no_timer(
    client: redis.Redis, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = dlock.Locks(client)
    second = locks.acquire(key + ":2", lease=0.8, renew=False)
    first = locks.acquire(key, lease=0.3, renew=False, on_lost=lambda _: None)

    def fail(*_: Any) -> threading.Thread:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    assert first.lost.wait(5) and second.lost.wait(5)
