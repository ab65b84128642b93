"""The driver of this library for the conformance kit: `driver.py sync|asyncio ADDRESS`.

It reads commands as JSON lines on stdin, and answers and tells events as JSON lines on stdout.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from typing import Any, Callable, Dict, List

import redis
import redis.asyncio

import dlock
from dlock._hold import Stage

Command = Dict[str, Any]
_output = threading.Lock()


def say(**line: Any) -> None:
    with _output:
        print(json.dumps(line), flush=True)


def options(command: Command) -> dlock.Options:
    chosen: dlock.Options = {"on_lost": lambda _: say(event="lost", of=command["id"])}
    if "lease_ms" in command:
        chosen["lease"] = command["lease_ms"] / 1000
    if command["do"] == "try":
        chosen["timeout"] = 0
    if "timeout_ms" in command:
        chosen["timeout"] = command["timeout_ms"] / 1000
    if "shared" in command:
        chosen["shared"] = command["shared"]
    if "limit" in command:
        chosen["limit"] = command["limit"]
    return chosen


def failure(error: BaseException) -> Command:
    if isinstance(error, dlock.Lost):
        return {"lost": True}
    if isinstance(error, dlock.Timeout):
        return {"held": False}
    if isinstance(error, redis.ResponseError):
        return {"error": str(error).split(" ")[0]}
    if isinstance(error, (redis.ConnectionError, redis.TimeoutError, OSError)):
        return {"error": "CONNECTION"}
    return {"error": repr(error)}


def state(held: Any) -> Command:
    if held is None or not held.is_held:
        return {"held": False, "remaining_ms": 0}
    return {"held": True, "remaining_ms": int(held.remaining() * 1000), "fence": held.fence}


def text(reply: Any) -> Any:
    return reply.decode() if isinstance(reply, bytes) else "OK" if reply is True else reply


class Cancelled(Exception):
    pass


class Threads:
    """Each command has a thread."""

    def __init__(self, address: str) -> None:
        self.client = redis.Redis.from_url(address)
        self.locks = dlock.Locks(self.client)
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
                self.held[command["id"]] = dlock.Held(self.client, command["key"], options(command))
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
        self.client = redis.asyncio.Redis.from_url(address)
        self.locks = dlock.aio.Locks(self.client)
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
            held = await self.locks.acquire(command["key"], **options(command))
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
