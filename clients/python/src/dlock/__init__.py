"""Distributed locks of the DLOCK module, for Redis and Valkey."""

from . import aio
from ._drop_in import Lock
from ._errors import Lost, Timeout
from ._events import Event
from ._options import Options
from ._sync import Held, Locks, lock

__all__ = ["Event", "Held", "Lock", "Locks", "Lost", "Options", "Timeout", "aio", "lock"]
