"""A server with the module for tests: `pip install redis-dlock` adds the fixture `dlock_server` to pytest.

The package redis-dlock-server brings a server with the module.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator, Optional

import pytest
import redis

_PREFIXES = ("/usr/local/lib", "/usr/lib", str(Path.home() / ".local/lib"))


def find_module() -> Optional[str]:
    """The path of the module: DLOCK_MODULE, that of redis-dlock-server, or where it is installed."""
    package = _server_package()
    paths = [os.environ.get("DLOCK_MODULE", ""), package.MODULE if package else ""]
    paths += [f"{prefix}/{server}/modules/libdlock.so" for prefix in _PREFIXES for server in ("redis", "valkey")]
    return next(filter(os.path.exists, paths), None)


def find_server() -> Optional[str]:
    """The path of the server: DLOCK_SERVER, that of redis-dlock-server, or the first one in PATH."""
    package = _server_package()
    programs = [os.environ.get("DLOCK_SERVER", ""), package.find_server() if package else ""]
    programs += ["valkey-server", "redis-server"]
    return next(filter(None, map(shutil.which, filter(None, programs))), None)


def _server_package() -> Any:
    """The package redis-dlock-server, if it is installed."""
    return importlib.import_module("dlock_server") if importlib.util.find_spec("dlock_server") else None


class DlockServer:
    """A server on a free port, without persistence."""

    def __init__(self, program: str, module: str, *options: str) -> None:
        self.program, self._module = program, os.path.abspath(module)
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._folder = tempfile.TemporaryDirectory(prefix="dlock-")
        self._command = [program, "--bind", "127.0.0.1", "--port", str(self.port), "--save", ""]
        self._command += ["--dir", self._folder.name, "--loadmodule", self._module, *options]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        client = self.client()
        for _ in range(500):
            try:
                client.ping()
                return
            except redis.ConnectionError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.02)
        raise RuntimeError(f"the server did not start: {' '.join(self._command)}")

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis("127.0.0.1", self.port, **options)

    def another(self, *options: str) -> DlockServer:
        """Another server of the same kind."""
        return DlockServer(self.program, self._module, *options)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.stop()
        self._folder.cleanup()


def free_port() -> int:
    """A port below those of outgoing connections, as is the one 10000 above, which the node of a cluster uses."""
    while True:
        port = random.randrange(10000, 22000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@pytest.fixture(scope="session")
def dlock_server() -> Iterator[DlockServer]:
    """A server for all tests of the session, which are skipped where the module is not installed."""
    program, module = find_server(), find_module()
    if program is None or module is None:
        pytest.skip(
            "needs redis-server or valkey-server, and the DLOCK module: "
            "install redis-dlock-server, or set DLOCK_MODULE to the path of the module"
        )
    server = DlockServer(program, module)
    yield server
    server.close()
