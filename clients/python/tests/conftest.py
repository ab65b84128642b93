"""Servers, proxies and clients for the tests."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
import time
from typing import Any, Awaitable, Callable, Dict, Iterator, List, Tuple

import pytest
import redis

import dlock
from dlock.testing import DlockServer

_keys = itertools.count()


def eventually(condition: Callable[[], Any], within: float = 10.0) -> Any:
    """Waits for a condition, and returns its value."""
    end = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < end, "the condition does not come true"
        time.sleep(0.005)
    return value


def run(test: Callable[[redis.asyncio.Redis], Awaitable[None]], port: int) -> None:
    """Runs a coroutine with an asyncio client."""

    async def main() -> None:
        client = redis.asyncio.Redis(port=port)
        try:
            await asyncio.wait_for(test(client), 30)
        finally:
            await dlock.aio.Locks(client).close()
            await client.aclose()

    asyncio.run(main())


class Proxy:
    """Forwards connections to a server. It can cut them, refuse them, and swallow replies to what it forwarded."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: List[Tuple[socket.socket, socket.socket]] = []
        self.is_refusing = False
        #: Requests that contain this are forwarded, but the connection is cut instead of replying.
        self.cut_after = b""
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        for pair in self._sockets:
            for each in pair:
                _shut(each)
        self._sockets.clear()

    def close(self) -> None:
        self.is_refusing = True
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_refusing:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._server_port))
            self._sockets.append((client, server))
            dead = threading.Event()
            threading.Thread(target=self._requests, args=(client, server, dead), daemon=True).start()
            threading.Thread(target=self._replies, args=(client, server, dead), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, dead: threading.Event) -> None:
        try:
            while data := client.recv(65536):
                if self.cut_after and self.cut_after in data:
                    self.cut_after = b""
                    dead.set()
                server.sendall(data)
        except OSError:
            pass
        _shut(server)

    def _replies(self, client: socket.socket, server: socket.socket, dead: threading.Event) -> None:
        try:
            while data := server.recv(65536):
                if dead.is_set():
                    break
                client.sendall(data)
        except OSError:
            pass
        _shut(client)


def _shut(each: socket.socket) -> None:
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


@pytest.fixture
def client(dlock_server: DlockServer) -> Iterator[redis.Redis]:
    client = dlock_server.client()
    yield client
    dlock.Locks(client).close()
    client.close()


@pytest.fixture
def other(dlock_server: DlockServer) -> Iterator[dlock.Locks]:
    """The locks of another process, as far as the server knows."""
    client = dlock_server.client()
    locks = dlock.Locks(client)
    yield locks
    locks.close()
    client.close()


@pytest.fixture
def key() -> str:
    return f"lock:{next(_keys)}"


@pytest.fixture
def proxy(dlock_server: DlockServer) -> Iterator[Proxy]:
    proxy = Proxy(dlock_server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def own_server(dlock_server: DlockServer) -> Iterator[DlockServer]:
    """A server that the test may stop or pause."""
    server = dlock_server.another()
    yield server
    server.close()


def info(client: redis.Redis, key: str) -> Dict[bytes, Any]:
    """DLOCK.INFO, whichever protocol the client speaks."""
    return _as_dict(client.execute_command("DLOCK.INFO", key))


def _as_dict(reply: Any) -> Dict[bytes, Any]:
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2])) if reply else {}


def waiters(client: redis.Redis, key: str) -> int:
    return int(info(client, key).get(b"waiting", 0))


def lease_ms(client: redis.Redis, key: str) -> int:
    return lease_of(info(client, key))


def lease_of(reply: Any) -> int:
    """What is left of the lease, by a reply to DLOCK.INFO."""
    return int(_as_dict(_as_dict(reply)[b"holders"][0])[b"lease-ms"])


def owner(client: redis.Redis, key: str) -> Any:
    return client.execute_command("DLOCK.OWNER", key)


class StandIn:
    """A server that replies what a test wants: in turn what is in `replies` for a command, then its last one."""

    def __init__(self, **replies: List[bytes]) -> None:
        self.replies = {f"DLOCK.{name}".encode(): list(each) for name, each in replies.items()}
        #: The commands that it has got.
        self.got: List[List[bytes]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def count(self, name: str) -> int:
        return sum(command[0] == f"DLOCK.{name}".encode() for command in self.got)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            self._reply_to_all(connection)

    def _reply_to_all(self, connection: socket.socket) -> None:
        requests = connection.makefile("rb")
        while line := requests.readline():
            command = []
            for _ in range(int(line[1:])):
                size = int(requests.readline()[1:])
                command.append(requests.read(size + 2)[:-2])
            self.got.append(command)
            replies = self.replies.get(command[0], [b"+OK"])
            reply = replies.pop(0) if len(replies) > 1 else replies[0]
            # Nothing stands for a server that is silent.
            if reply:
                connection.sendall(reply + b"\r\n")
