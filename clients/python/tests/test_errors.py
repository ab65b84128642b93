"""What each error of the server does to a request, and what the caller is told."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List

import pytest
import redis
import redis.asyncio
from conftest import Proxy, StandIn, eventually, owner, run, waiters
from redis.exceptions import AuthenticationError, BusyLoadingError, NoPermissionError

import dlock
from dlock import _core, _held
from dlock._errors import raised
from dlock.testing import DlockServer

GRANTED = b"*4\r\n:7\r\n:1\r\n:30000\r\n:0"
QUEUED = b"*1\r\n:0"
INBOX = b"*3\r\n:1\r\n:0\r\n*0"
TEMPORARY = ["TRYAGAIN", "CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING", "UNBLOCKED", "BUSY", "MISCONF"]
TEMPORARY += ["NOREPLICAS", "OOM"]
FULL = ["GRACE", "QUEUEFULL"]
TOLD = ["DEADLOCK", "EVICTABLE", "NOPERM", "NOAUTH", "ERR", "WHATEVER"]


@pytest.fixture
def stand_in() -> Iterator[Callable[..., StandIn]]:
    made: List[StandIn] = []

    def make(**replies: List[bytes]) -> StandIn:
        made.append(StandIn(**{"GRANTS": [INBOX], "RELEASE": [b":0"], **replies}))
        return made[-1]

    yield make
    for each in made:
        each.close()


def locks_of(server: StandIn) -> dlock.Locks:
    return dlock.Locks(redis.Redis(port=server.port, protocol=2))


def error(word: str) -> bytes:
    return f"-{word} in the way".encode()


def told(word: str) -> Any:
    return pytest.raises(redis.RedisError, match=f"^{word} in the way")


@pytest.mark.parametrize("word", TEMPORARY + FULL)
def test_temporary_error_does_not_end_an_acquisition_that_waits(stand_in: Any, word: str) -> None:
    server = stand_in(ACQUIRE=[error(word), error(word), GRANTED])
    assert locks_of(server).acquire("k", timeout=30).fence == 7
    assert server.count("ACQUIRE") == 3


@pytest.mark.parametrize("word", TEMPORARY + FULL + TOLD + ["WRONGTYPE"])
def test_error_ends_an_acquisition_that_does_not_wait(stand_in: Any, word: str) -> None:
    server = stand_in(ACQUIRE=[error(word)])
    with told(word):
        locks_of(server).try_acquire("k")
    assert server.count("ACQUIRE") == 1


@pytest.mark.parametrize("word", [*TOLD, "NOTHELD", "NOTOWNER", "STALE", "WRONGTYPE"])
def test_error_that_lasts_ends_an_acquisition_that_waits(stand_in: Any, word: str) -> None:
    with told(word):
        locks_of(stand_in(ACQUIRE=[error(word)])).acquire("k", timeout=30)


@pytest.mark.parametrize("word", TEMPORARY + FULL)
def test_temporary_error_does_not_end_an_extension(stand_in: Any, word: str) -> None:
    held = locks_of(stand_in(ACQUIRE=[GRANTED], EXTEND=[error(word), error(word), b":60000"])).acquire("k")
    held.extend(60)
    assert held.remaining() > 50


@pytest.mark.parametrize("word", TOLD)
def test_error_that_lasts_is_told_of_an_extension_and_the_lock_is_kept(stand_in: Any, word: str) -> None:
    held = locks_of(stand_in(ACQUIRE=[GRANTED], EXTEND=[error(word)])).acquire("k")
    with told(word):
        held.extend(60)
    assert held.is_held and held.lease_ms == 30_000


@pytest.mark.parametrize("word", TEMPORARY)
def test_temporary_error_does_not_end_a_release(stand_in: Any, word: str) -> None:
    server = stand_in(ACQUIRE=[GRANTED], RELEASE=[error(word), error(word), b":0"])
    locks_of(server).acquire("k").release()
    assert server.count("RELEASE") == 3


@pytest.mark.parametrize("word", TOLD + FULL)
def test_error_that_lasts_is_told_of_a_release(stand_in: Any, word: str) -> None:
    held = locks_of(stand_in(ACQUIRE=[GRANTED], RELEASE=[error(word)])).acquire("k")
    with told(word):
        held.release()


@pytest.mark.parametrize("word", ["NOTHELD", "NOTOWNER", "STALE", "WRONGTYPE"])
def test_lock_that_the_server_does_not_know_is_lost_with_its_word(stand_in: Any, word: str) -> None:
    for broken, operation in ({"EXTEND": [error(word)]}, "extend"), ({"RELEASE": [error(word)]}, "release"):
        held = locks_of(stand_in(ACQUIRE=[GRANTED], **broken)).acquire("k")
        with pytest.raises(dlock.Lost) as told_of:
            held.extend(60) if operation == "extend" else held.release()
        assert told_of.value.reason == word


@pytest.mark.parametrize("word", ["NOTHELD", "NOTOWNER", "STALE"])
def test_query_of_a_lost_lock_is_lost(stand_in: Any, word: str) -> None:
    held = locks_of(stand_in(ACQUIRE=[GRANTED], **{"GUARD": [error(word)]})).acquire("k")
    with pytest.raises(dlock.Lost) as told_of:
        held.query("GET", "x")
    assert told_of.value.reason == word and held.lost.is_set()


@pytest.mark.parametrize("word", [*TEMPORARY, *FULL, *TOLD, "WRONGTYPE"])
def test_error_of_a_query_is_told_with_its_word(stand_in: Any, word: str) -> None:
    server = stand_in(ACQUIRE=[GRANTED], GUARD=[error(word)])
    held = locks_of(server).acquire("k")
    with told(word):
        held.query("GET", "x")
    assert held.is_held and server.count("GUARD") == 1


@pytest.mark.parametrize("word", ["MOVED", "ASK"])
def test_redirection_by_a_server_that_is_no_cluster_is_told(stand_in: Any, word: str) -> None:
    short, redirected = b"*4\r\n:7\r\n:1\r\n:500\r\n:0", f"-{word} 7 127.0.0.1:1".encode()
    server = stand_in(ACQUIRE=[short], GUARD=[redirected], EXTEND=[redirected])
    held = locks_of(server).acquire("k", lease=0.5)
    with pytest.raises(redis.ResponseError, match=f"^{word}.*client for clusters"):
        held.query("GET", "x")
    assert held.lost.wait(10) and held.lost_error().reason == "EXPIRED"
    assert str(held.lost_error().__cause__).startswith(word)


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_query_whose_reply_is_lost_is_sent_once_by_a_client_that_repeats(
    proxy: Proxy, client: redis.Redis, key: str, kind: str
) -> None:
    counter = "{" + key + "}:count"
    if kind == "threads":
        with dlock.lock(redis.Redis(port=proxy.port), key) as held:
            proxy.cut_after = b"DLOCK.GUARD"
            with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
                held.query("INCR", counter)
            assert held.query("GET", counter) == b"1"
        return

    async def test(r: redis.asyncio.Redis) -> None:
        async with dlock.aio.Locks(r).lock(key) as held:
            proxy.cut_after = b"DLOCK.GUARD"
            with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
                await held.query("INCR", counter)
            assert await held.query("GET", counter) == b"1"

    run(test, proxy.port)


def test_errors_have_the_classes_of_redis_py(dlock_server: DlockServer, client: redis.Redis, key: str) -> None:
    client.execute_command("ACL SETUSER reader on >pw ~* -@all +get")
    for options, kind, word in (
        ({"username": "reader", "password": "wrong"}, AuthenticationError, "WRONGPASS"),
        ({"username": "reader", "password": "pw"}, NoPermissionError, "NOPERM"),
    ):
        with pytest.raises(kind, match=f"^{word}"):
            dlock.Locks(dlock_server.client(**options)).acquire(key, timeout=5)


def test_loading_server_is_a_busy_loading_error(stand_in: Any) -> None:
    with pytest.raises(BusyLoadingError, match="^LOADING"):
        locks_of(stand_in(ACQUIRE=[error("LOADING")])).try_acquire("k")


def test_server_without_the_module_is_named(stand_in: Any) -> None:
    server = stand_in(ACQUIRE=[b"-ERR unknown command 'DLOCK.ACQUIRE', with args beginning with: 'k'"])
    with pytest.raises(redis.ResponseError, match=f"^ERR .*localhost:{server.port} does not have the module"):
        locks_of(server).acquire("k")


def test_errors_are_shown_by_their_names() -> None:
    assert repr(dlock.Lost("gone")) == "Lost('gone')" and repr(dlock.Timeout("late")) == "Timeout('late')"


# Causes.


def test_timeout_of_a_lock_that_others_hold_says_so(client: redis.Redis, other: dlock.Locks, key: str) -> None:
    with other.lock(key), pytest.raises(dlock.Timeout, match="others hold it") as told_of:
        dlock.Locks(client).acquire(key, timeout=0.2)
    assert told_of.value.reason == "TAKEN" and told_of.value.__cause__ is None


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_timeout_in_a_grace_period_names_it(
    dlock_server: DlockServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_held, "_PROBE_TIME", 10.0)
    server = dlock_server.another("--dlock.startup-grace-ms", "20000")
    try:
        with pytest.raises(dlock.Timeout, match="GRACE") as told_of:
            if kind == "threads":
                dlock.Locks(server.client()).acquire("k", timeout=0.2)
            else:
                run(_acquire_in_vain, server.port)
        assert told_of.value.reason == "GRACE"
    finally:
        server.close()


async def _acquire_in_vain(r: redis.asyncio.Redis) -> None:
    await dlock.aio.Locks(r).acquire("k", timeout=0.2)


def test_timeout_without_any_reply_says_so(stand_in: Any) -> None:
    server = stand_in(ACQUIRE=[GRANTED, b""])
    locks = locks_of(server)
    locks.acquire("k").release()
    with pytest.raises(dlock.Timeout, match="no reply from the server") as told_of:
        locks.acquire("k", timeout=0.2)
    assert told_of.value.reason == "CONNECTION"
    # It would keep the frames of the thread that sends.
    assert told_of.value.__cause__ and told_of.value.__cause__.__traceback__ is None

    async def test(r: redis.asyncio.Redis) -> None:
        with pytest.raises(dlock.Timeout, match="no reply from the server") as told_of:
            await dlock.aio.Locks(r).acquire("k", timeout=0.2)
        assert told_of.value.reason == "CONNECTION"

    run(test, server.port)


def test_timeout_names_the_last_error(stand_in: Any) -> None:
    server = stand_in(ACQUIRE=[error("MISCONF")])
    with pytest.raises(dlock.Timeout, match="MISCONF in the way") as told_of:
        locks_of(server).acquire("k", timeout=0.3)
    assert told_of.value.reason == "MISCONF"


def test_timeout_of_a_queued_request_whose_reader_gets_no_answers_says_so(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlock._link._SILENCE", 0.1)
    server = stand_in(ACQUIRE=[b"-NOINBOX", QUEUED], GRANTS=[INBOX, b""])
    with pytest.raises(dlock.Timeout, match="no reply from the server") as told_of:
        locks_of(server).acquire("k", timeout=0.5)
    assert told_of.value.reason == "CONNECTION"


def test_timeout_after_the_reader_has_connected_again_says_that_others_hold_it(
    proxy: Proxy, other: dlock.Locks, client: redis.Redis, key: str
) -> None:
    locks = dlock.Locks(redis.Redis(port=proxy.port))
    outcomes: List[BaseException] = []

    def wait() -> None:
        try:
            locks.acquire(key, timeout=1.5)
        except dlock.Timeout as error:
            outcomes.append(error)

    with other.lock(key):
        thread = threading.Thread(target=wait)
        thread.start()
        eventually(lambda: waiters(client, key) == 1)
        proxy.cut()
        # The other connection, too.
        with locks.lock(key + ":2"):
            pass
        thread.join()
    assert [error.reason for error in outcomes if isinstance(error, dlock.Timeout)] == ["TAKEN"]


def test_attempt_at_a_silent_server_ends_with_the_error_of_its_connection(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_held, "_PATIENCE", 0.3)
    locks = locks_of(stand_in(ACQUIRE=[GRANTED, b""]))
    locks.acquire("k").release()
    begun = time.monotonic()
    with pytest.raises((redis.TimeoutError, redis.ConnectionError)):
        locks.try_acquire("k")
    assert 0.3 <= time.monotonic() - begun < 3


def test_release_without_a_reply_is_unconfirmed_after_its_time(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "_RELEASE_TIME", 0.3)
    held = locks_of(stand_in(ACQUIRE=[GRANTED], RELEASE=[b""])).acquire("k", lease=30)
    begun = time.monotonic()
    with pytest.raises(dlock.Lost) as told_of:
        held.release()
    assert told_of.value.reason == "UNCONFIRMED" and time.monotonic() - begun < 10


def test_loss_after_failed_renewals_names_the_last_error(stand_in: Any) -> None:
    short = b"*4\r\n:7\r\n:1\r\n:300\r\n:0"
    held = locks_of(stand_in(ACQUIRE=[short], EXTEND=[error("NOPERM")])).acquire("k", lease=0.3)
    assert held.lost.wait(10)
    with pytest.raises(dlock.Lost, match="not renewed in time after NOPERM") as told_of:
        held.release()
    assert told_of.value.reason == "EXPIRED" and str(told_of.value.__cause__).startswith("NOPERM")


def test_loss_after_silence_names_the_missing_reply(stand_in: Any) -> None:
    short = b"*4\r\n:7\r\n:1\r\n:300\r\n:0"
    held = locks_of(stand_in(ACQUIRE=[short], EXTEND=[b""])).acquire("k", lease=0.3)
    assert held.lost.wait(10)
    assert isinstance(held.lost_error().__cause__, redis.TimeoutError)


def test_expired_lock_is_lost_before_a_thread_says_so(client: redis.Redis, key: str) -> None:
    held = dlock.Locks(client).acquire(key, lease=0.2, renew=False)
    # As after a pause: the thread that watches the time does not run.
    with held.core.lock:
        eventually(lambda: not held.is_held)
        assert held.lost.is_set()
        with pytest.raises(dlock.Lost, match="not renewed in time"):
            held.query("GET", "x")


def test_blocked_event_loop_sees_at_once_that_its_lock_is_lost(dlock_server: DlockServer, key: str) -> None:
    async def test(r: redis.asyncio.Redis) -> None:
        held = await dlock.aio.Locks(r).acquire(key, lease=0.2, renew=False)
        time.sleep(0.4)
        assert held.lost.is_set() and held.lost_error().reason == "EXPIRED"

    run(test, dlock_server.port)


def test_reason_of_a_loss_stays_when_its_locks_are_closed(stand_in: Any) -> None:
    # It cannot be given back.
    locks = locks_of(stand_in(ACQUIRE=[b"*4\r\n:7\r\n:1\r\n:200\r\n:0"], RELEASE=[b""]))
    held = locks.acquire("k", lease=0.2, renew=False)
    assert held.lost.wait(10)
    locks.close()
    with pytest.raises(dlock.Lost, match="not renewed in time"):
        held.release()


def test_lock_whose_client_is_made_in_place_is_renewed(dlock_server: DlockServer, key: str) -> None:
    held = dlock.Locks(dlock_server.client()).acquire(key, lease=0.6)
    gc.collect()
    time.sleep(1.2)
    assert held.is_held
    held.release()


# What stays.


def _threads() -> int:
    gc.collect()
    return sum(thread.name.startswith("dlock") for thread in threading.enumerate())


@pytest.mark.parametrize("fails", ["refused", "wrong password", "no right", "taken", "not at all"])
def test_dropped_clients_leave_no_threads(
    dlock_server: DlockServer, client: redis.Redis, other: dlock.Locks, key: str, fails: str
) -> None:
    client.execute_command("ACL SETUSER reader on >pw ~* -@all +get")
    options: Dict[str, Any] = {
        "wrong password": {"username": "reader", "password": "wrong"},
        "no right": {"username": "reader", "password": "pw"},
    }.get(fails, {})
    blocker = other.acquire(key) if fails == "taken" else None
    before = _threads()
    for _ in range(100):
        made = redis.Redis(port=1) if fails == "refused" else dlock_server.client(**options)
        try:
            dlock.Locks(made).acquire(key, timeout=0.01).release()
        except (redis.RedisError, dlock.Timeout):
            pass
        del made
    eventually(lambda: _threads() <= before + 1, 30)
    if blocker:
        blocker.release()


@pytest.mark.parametrize("fails", ["refused", "lost"])
def test_error_keeps_no_frames_of_its_caller(client: redis.Redis, key: str, fails: str) -> None:
    class Big:
        pass

    kept: List[Any] = []

    def fail() -> None:
        big = Big()
        lock = dlock.lock(redis.Redis(port=1) if fails == "refused" else client, key)
        kept.extend((weakref.ref(big), lock))
        lock.acquire()
        client.delete(key)
        lock.release()

    with pytest.raises(redis.ConnectionError if fails == "refused" else dlock.Lost):
        fail()
    eventually(lambda: gc.collect() is not None and kept[0]() is None, 5)


def test_error_of_a_connection_is_another_one_for_each_caller() -> None:
    error = redis.ConnectionError("reset")
    assert raised(error) is not raised(error)
    assert repr(raised(error)) == repr(error)


# Events.


def test_events_tell_of_each_acquisition_and_its_end(client: redis.Redis, other: dlock.Locks, key: str) -> None:
    events: List[dlock.Event] = []
    locks = dlock.Locks(client, on_event=events.append)
    with other.lock(key):
        assert locks.try_acquire(key) is None
        thread = threading.Thread(target=lambda: locks.acquire(key).release())
        thread.start()
        eventually(lambda: waiters(client, key) == 1)
    thread.join()
    held = locks.acquire(key, lease=0.2, renew=False)
    assert held.lost.wait(10)
    eventually(lambda: len(events) == 6)
    assert [event.name for event in events] == ["not acquired", "queued", "acquired", "released", "acquired", "lost"]
    assert all(event.key == key and event.seconds >= 0 for event in events)
    assert events[1].ahead == 0 and events[5].seconds > 0.19
    assert isinstance(events[0].error, dlock.Timeout)
    assert isinstance(events[5].error, dlock.Lost) and events[5].error.reason == "EXPIRED"


def test_events_tell_of_what_waits_at_the_end(client: redis.Redis, other: dlock.Locks, key: str) -> None:
    events: List[dlock.Event] = []
    locks = dlock.Locks(client, on_event=events.append)

    def wait() -> None:
        with pytest.raises(dlock.Lost):
            locks.acquire(key)

    with other.lock(key):
        thread = threading.Thread(target=wait)
        thread.start()
        eventually(lambda: waiters(client, key) == 1)
        locks.close()
        thread.join()
    eventually(lambda: [event.name for event in events] == ["queued", "not acquired"])
    assert isinstance(events[1].error, dlock.Lost) and events[1].error.reason == "CLOSED"
    eventually(lambda: not any(thread.name == "dlock events" for thread in threading.enumerate()))


def test_events_of_coroutines_come_in_their_loop(dlock_server: DlockServer, key: str) -> None:
    events: List[dlock.Event] = []

    async def test(r: redis.asyncio.Redis) -> None:
        async with dlock.aio.Locks(r, on_event=events.append).lock(key):
            pass
        await asyncio.sleep(0)
        assert [event.name for event in events] == ["acquired", "released"]

    run(test, dlock_server.port)


def test_function_for_events_that_hangs_delays_no_lock(client: redis.Redis, key: str) -> None:
    free = threading.Event()
    locks = dlock.Locks(client, on_event=lambda _: free.wait(30))
    try:
        held = locks.acquire(key, lease=0.6)
        time.sleep(1.2)
        assert held.is_held and owner(client, key)
        held.release()
    finally:
        free.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_function_for_events_that_fails_is_called_with_the_next(client: redis.Redis, key: str) -> None:
    seen: List[str] = []

    def on_event(event: dlock.Event) -> None:
        seen.append(event.name)
        if event.name == "acquired":
            raise LookupError

    with dlock.Locks(client, on_event=on_event).lock(key):
        pass
    eventually(lambda: seen == ["acquired", "released"])
