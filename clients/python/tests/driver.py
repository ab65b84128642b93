"""The driver of this library for the conformance kit: `driver.py sync|asyncio ADDRESS`.

It reads commands as JSON lines on stdin, and answers and tells events as JSON lines on stdout.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import math
import sys
import threading
import time
from typing import Any, Callable, Dict, List

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

import dlock
from dlock._hold import Stage

Command = Dict[str, Any]
_output = threading.Lock()


def say(**line: Any) -> None:
    with _output:
        print(json.dumps(line), flush=True)


def client_of(address: str, library: Any) -> Any:
    """A client of a server, of a cluster, or of the primary `main` that a Sentinel knows."""
    kind, _, place = address.rstrip("/").partition("://")
    if kind == "redis":
        return library.Redis.from_url(address)
    host, port = place.split(":")
    if kind == "redis+cluster":
        return library.RedisCluster(host=host, port=int(port))
    return library.sentinel.Sentinel([(host, int(port))]).master_for("main")


NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def seconds(value: Any) -> Any:
    value = NUMBERS.get(value, value) if isinstance(value, str) else value
    return value / 1000 if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def key(command: Command) -> Any:
    return bytes.fromhex(command["key_hex"]) if "key_hex" in command else command["key"]


def options(command: Command) -> Any:
    chosen: Command = {"on_lost": lambda held: tell_lost(command["id"], held)}
    if command["do"] == "try":
        chosen["timeout"] = 0
    for name in ("lease", "timeout", "max_hold"):
        if name + "_ms" in command:
            chosen[name] = seconds(command[name + "_ms"])
    chosen.update({name: command[name] for name in ("shared", "limit", "owner", "renew") if name in command})
    return {**chosen, **command.get("options", {})}


def word(error: BaseException) -> str:
    """The first word of the server's error. Those of connections begin with a usual word."""
    first = str(error).split(" ")[0]
    if first.isupper() and first.isalpha() and isinstance(error, redis.RedisError):
        return first
    return "CONNECTION" if isinstance(error, (redis.ConnectionError, redis.TimeoutError, OSError)) else repr(error)


def because(error: dlock.Lost) -> Command:
    last = error.__cause__
    return {"because": error.reason, **({"last": word(last)} if error.reason == "EXPIRED" and last else {})}


def tell_waiting(event: dlock.Event) -> None:
    if event.name == "waiting":
        say(event="waiting", key=event.key, holder=event.holder or None, waited_ms=int(event.seconds * 1000))


def tell_lost(number: int, held: Any) -> None:
    say(event="lost", of=number, **because(held.lost_error()))


def failure(error: BaseException) -> Command:
    if isinstance(error, dlock.Lost):
        return {"lost": True, **because(error)}
    if isinstance(error, dlock.Timeout):
        return {"held": False, "because": error.reason}
    if isinstance(error, (ValueError, TypeError)) and not isinstance(error, redis.RedisError):
        return {"error": "ARGUMENT"}
    return {"error": word(error)}


def state(held: Any) -> Command:
    if held is None or not held.is_held:
        return {"held": False, "remaining_ms": 0}
    return {"held": True, "remaining_ms": int(held.remaining() * 1000), "fence": held.fence}


def text(reply: Any) -> Any:
    return reply.decode() if isinstance(reply, bytes) else "OK" if reply is True else reply


class Cancelled(Exception):
    pass


NOWHERE = "redis://127.0.0.1:1/"


def count_tasks(command: Command) -> None:
    gc.collect()
    say(id=command["id"], tasks=threading.active_count())


class Threads:
    """Each command has a thread."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.many: List[dlock.Held] = []
        self.client = client_of(address, redis)
        self.locks = dlock.Locks(self.client, on_event=tell_waiting)
        self.held: Dict[int, dlock.Held] = {}

    def run(self) -> None:
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "close":
                self.close()
                say(id=command["id"], ok=True)
                return
            if command["do"] in ("acquire", "try"):
                # Known before a command about it is read.
                try:
                    self.held[command["id"]] = self.locks.lock(key(command), **options(command))
                except Exception as error:
                    say(id=command["id"], **failure(error))
                    continue
            action: Callable[[Command], None] = getattr(self, "do_" + command["do"], self.unknown)
            thread = threading.Thread(target=action, args=(command,), daemon=True)
            thread.start()
            if command["do"] in ("cancel", "block"):
                thread.join()
        self.close()

    def close(self) -> None:
        for held in list(self.held.values()):
            self.cancel(held)
            if held.is_held:
                held.release()
        self.locks.close()

    @staticmethod
    def cancel(held: dlock.Held) -> None:
        """Does what KeyboardInterrupt does in the main thread: the other threads of Python cannot be interrupted."""
        with held.core.lock:
            if held.stage is Stage.WAITING:
                held.core._finish(held, Cancelled())

    def unknown(self, command: Command) -> None:
        say(id=command["id"], error="UNKNOWN")

    def do_acquire(self, command: Command) -> None:
        held = self.held[command["id"]]
        try:
            held.acquire()
            say(id=command["id"], held=True, fence=held.fence)
        except Cancelled:
            say(id=command["id"], cancelled=True)
        except BaseException as error:
            say(id=command["id"], **failure(error))

    def do_try(self, command: Command) -> None:
        self.do_acquire(command)

    def do_cancel(self, command: Command) -> None:
        self.cancel(self.held[command["of"]])
        say(id=command["id"], ok=True)

    def do_release(self, command: Command) -> None:
        try:
            self.held[command["of"]].release()
            say(id=command["id"], released=True)
        except BaseException as error:
            say(id=command["id"], **failure(error))

    def do_extend(self, command: Command) -> None:
        try:
            self.held[command["of"]].extend(seconds(command["lease_ms"]))
            say(id=command["id"], extended=True)
        except BaseException as error:
            say(id=command["id"], **failure(error))

    def do_churn(self, command: Command) -> None:
        for _ in range(command["times"]):
            self.churn(command)
        say(id=command["id"], ok=True)

    def churn(self, command: Command) -> None:
        address = NOWHERE if command.get("fails") else self.address
        client = self.client if command.get("same_client") else redis.Redis.from_url(address)
        timeout = 0.05 if command.get("fails") else None
        with contextlib.suppress(redis.ConnectionError, dlock.Timeout):
            dlock.Locks(client).acquire(key(command), timeout=timeout).release()

    def do_resources(self, command: Command) -> None:
        count_tasks(command)

    def do_hold_many(self, command: Command) -> None:
        begun = time.monotonic()
        self.many = [
            self.locks.lock(f"{command['prefix']}{number}", lease=command["lease_ms"] / 1000)
            for number in range(command["locks"])
        ]
        held = self.all_of_many(dlock.Held.acquire)
        say(id=command["id"], held=held, took_ms=int((time.monotonic() - begun) * 1000))

    def do_release_many(self, command: Command) -> None:
        released = self.all_of_many(dlock.Held.release)
        say(id=command["id"], released=released, lost=len(self.many) - released)

    def all_of_many(self, action: Callable[[dlock.Held], None]) -> int:
        """How many succeed."""
        done: List[int] = []

        def run(held: dlock.Held) -> None:
            with contextlib.suppress(redis.RedisError):
                action(held)
                done.append(1)

        threads = [threading.Thread(target=run, args=(held,)) for held in self.many]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(done)

    def do_state(self, command: Command) -> None:
        say(id=command["id"], **state(self.held.get(command["of"])))

    def do_query(self, command: Command) -> None:
        try:
            say(id=command["id"], reply=text(self.held[command["of"]].query(*command["command"])))
        except BaseException as error:
            say(id=command["id"], **failure(error))

    def do_block(self, command: Command) -> None:
        time.sleep(command["ms"] / 1000)
        say(id=command["id"], ok=True)


class Tasks:
    """Each command has a task."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.many: List[dlock.aio.Held] = []
        self.client = client_of(address, redis.asyncio)
        self.locks = dlock.aio.Locks(self.client, on_event=tell_waiting)
        self.held: Dict[int, dlock.aio.Held] = {}
        self.tasks: Dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        lines: asyncio.Queue[str] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read() -> None:
            for line in sys.stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, "")

        threading.Thread(target=read, daemon=True).start()
        while line := await lines.get():
            command = json.loads(line)
            if command["do"] == "close":
                await self.close()
                say(id=command["id"], ok=True)
                return
            action = getattr(self, "do_" + command["do"], self.unknown)
            self.tasks[command["id"]] = asyncio.create_task(action(command))
            # It begins before a later command is read.
            await asyncio.sleep(0)
        await self.close()

    async def close(self) -> None:
        waiting: List[asyncio.Task[None]] = [task for task in self.tasks.values() if not task.done()]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for held in list(self.held.values()):
            if held.is_held:
                await held.release()
        await self.locks.close()

    async def unknown(self, command: Command) -> None:
        say(id=command["id"], error="UNKNOWN")

    async def do_acquire(self, command: Command) -> None:
        try:
            held = await self.locks.acquire(key(command), **options(command))
            self.held[command["id"]] = held
            say(id=command["id"], held=True, fence=held.fence)
        except asyncio.CancelledError:
            say(id=command["id"], cancelled=True)
        except BaseException as error:
            say(id=command["id"], **failure(error))

    async def do_try(self, command: Command) -> None:
        await self.do_acquire(command)

    async def do_cancel(self, command: Command) -> None:
        self.tasks[command["of"]].cancel()
        say(id=command["id"], ok=True)

    async def do_release(self, command: Command) -> None:
        try:
            await self.held[command["of"]].release()
            say(id=command["id"], released=True)
        except BaseException as error:
            say(id=command["id"], **failure(error))

    async def do_extend(self, command: Command) -> None:
        try:
            await self.held[command["of"]].extend(seconds(command["lease_ms"]))
            say(id=command["id"], extended=True)
        except BaseException as error:
            say(id=command["id"], **failure(error))

    async def do_churn(self, command: Command) -> None:
        for _ in range(command["times"]):
            await self.churn(command)
        say(id=command["id"], ok=True)

    async def churn(self, command: Command) -> None:
        address = NOWHERE if command.get("fails") else self.address
        client = self.client if command.get("same_client") else redis.asyncio.Redis.from_url(address)
        timeout = 0.05 if command.get("fails") else None
        with contextlib.suppress(redis.ConnectionError, dlock.Timeout):
            await (await dlock.aio.Locks(client).acquire(key(command), timeout=timeout)).release()

    async def do_resources(self, command: Command) -> None:
        count_tasks(command)

    async def do_hold_many(self, command: Command) -> None:
        begun = time.monotonic()
        self.many = [
            self.locks.lock(f"{command['prefix']}{number}", lease=command["lease_ms"] / 1000)
            for number in range(command["locks"])
        ]
        outcomes = await asyncio.gather(*(held.acquire() for held in self.many), return_exceptions=True)
        took = time.monotonic() - begun
        say(id=command["id"], held=outcomes.count(None), took_ms=int(took * 1000))

    async def do_release_many(self, command: Command) -> None:
        outcomes = await asyncio.gather(*(held.release() for held in self.many), return_exceptions=True)
        say(id=command["id"], released=outcomes.count(None), lost=len(outcomes) - outcomes.count(None))

    async def do_state(self, command: Command) -> None:
        say(id=command["id"], **state(self.held.get(command["of"])))

    async def do_query(self, command: Command) -> None:
        try:
            say(id=command["id"], reply=text(await self.held[command["of"]].query(*command["command"])))
        except BaseException as error:
            say(id=command["id"], **failure(error))

    async def do_block(self, command: Command) -> None:
        time.sleep(command["ms"] / 1000)
        say(id=command["id"], ok=True)


if __name__ == "__main__":
    kind, address = sys.argv[1:]
    say(driver=f"python-{kind}", renews_while_blocked=True)
    if kind == "sync":
        Threads(address).run()
    else:
        asyncio.run(Tasks(address).run())
