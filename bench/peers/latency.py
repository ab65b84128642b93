"""Locks of DLOCK's libraries behind a network with latency: how long it takes to acquire many at once, and how many of
those that are held are lost.

The libraries are run by their drivers, whose commands tests/conformance/README.md describes. Each connects through a
proxy that passes everything on after half of the round trip's time, whatever the amount.
"""

import asyncio
import contextlib
import json
import subprocess
import threading
import time

ROUND_TRIPS_MS = [1, 20, 80]
ACQUIRED, HELD = 1_000, 10_000
WARM_UPS = 5
LEASE_MS = 30_000
# A lock that is not renewed is lost within that time.
HELD_FOR_S = 40
UNITS = {f"{ACQUIRED} locks": "ms", f"{HELD} locks": "ms", f"lost of {HELD}": ""}


class DelayingProxy:
    """Passes on what it gets after a delay, in order. In a thread of its own, until it is closed."""

    def __init__(self, port, delay_s):
        self._target, self._delay = port, delay_s
        self._loop, started = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait()

    def __enter__(self):
        return self.port

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, started):
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._on_client, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _on_client(self, reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))

    async def _pass_on(self, reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 20):
                self._loop.call_later(self._delay, writer.write, data)
        self._loop.call_later(self._delay, writer.close)


class Driver:
    """A library, which does what it is told."""

    def __init__(self, command, port, **options):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen([*command, f"redis://127.0.0.1:{port}/"], **pipes, **options)
        self._number = 0
        self._read(lambda line: "driver" in line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    def do(self, what, **fields):
        self._number += 1
        print(json.dumps({"id": self._number, "do": what, **fields}), file=self._process.stdin, flush=True)
        return self._read(lambda line: line.get("id") == self._number)

    def _read(self, is_wanted):
        for text in self._process.stdout:
            if is_wanted(line := json.loads(text)):
                return line
        raise RuntimeError("the driver has ended")


def measure_by_hand(command, port, round_trip_ms, **options):
    """Returns the figures of a client library alone, which no lock library on it can go below."""
    with DelayingProxy(port, round_trip_ms / 2000) as near:
        arguments = [near, ACQUIRED, WARM_UPS + 1]
        took = subprocess.check_output([*command, *map(str, arguments)], text=True, **options)
        return {f"{ACQUIRED} locks": float(took)}


def measure(command, port, round_trip_ms, **options):
    """Returns the figures of a library at this distance."""
    with DelayingProxy(port, round_trip_ms / 2000) as near, Driver(command, near, **options) as driver:

        def hold(locks):
            answer = driver.do("hold_many", locks=locks, lease_ms=LEASE_MS, prefix="latency:")
            if answer.get("held") != locks:
                raise RuntimeError(f"{command} acquires {answer} of {locks} locks")
            return answer["took_ms"]

        def release():
            return driver.do("release_many")["lost"]

        # It connects, and the JVM and V8 compile what is hot.
        for _ in range(WARM_UPS):
            hold(ACQUIRED), release()
        fast = hold(ACQUIRED)
        release()
        slow = hold(HELD)
        time.sleep(HELD_FOR_S)
        lost = release()
        driver.do("close")
        return {f"{ACQUIRED} locks": fast, f"{HELD} locks": slow, f"lost of {HELD}": lost}
