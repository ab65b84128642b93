"""Distributed locks of the DLOCK module, for Redis and Valkey."""

from . import aio
from ._drop_in import Lock
from ._hold import Lost, Options, Timeout
from ._sync import Held, Locks, lock

__all__ = ["Held", "Lock", "Locks", "Lost", "Options", "Timeout", "aio", "lock"]
