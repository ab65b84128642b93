"""Locks for asyncio."""

from ._aio import Held, Locks
from ._drop_in import AsyncLock as Lock

__all__ = ["Held", "Lock", "Locks"]
