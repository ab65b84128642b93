"""The core of each client: it ends with its client, and begins anew after a fork."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any, Callable

from ._connect import check_client
from ._core import Core

_cores: weakref.WeakKeyDictionary[Any, Core] = weakref.WeakKeyDictionary()


def core_of(client: Any, is_async: bool) -> Core:
    """The core of a client, for all that use this client."""
    check_client(client, is_async)
    core = _cores.get(client)
    if core is None:
        # Of several threads, one is the first.
        core = _cores.setdefault(client, Core(client))
        weakref.finalize(client, core.stop).atexit = False
    return core


def close_core_of(client: Any) -> None:
    core = _cores.pop(client, None)
    if core is not None:
        try:
            core.withdraw()
            core.settle(3.0)
        finally:
            core.stop()


def _for_each_core(do: Callable[[Core], None]) -> None:
    for core in list(_cores.values()):
        do(core)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _for_each_core(Core.start))
# A program that ends waits a moment for what it has released or cancelled.
atexit.register(lambda: _for_each_core(lambda core: core.settle(0.1)))
