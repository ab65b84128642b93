"""Commands over the program's own client that are sent once: its retries could run them twice."""

from __future__ import annotations

import inspect
from typing import Any, Optional, Sequence

import redis
from redis.exceptions import ResponseError

from ._connect import Address

#: redis-py before 5.3 wants to know what a connection is for.
_PURPOSE = () if tuple(map(int, redis.__version__.split(".")[:2])) >= (5, 3) else ("DLOCK.GUARD",)


async def send_once(client: Any, node: Optional[Address], commands: Sequence[Sequence[Any]]) -> Any:
    """Sends them to this node of a cluster, or to the one server. For threads, it is never suspended.

    Returns the last reply.
    """
    pool = client.connection_pool if node is None else await _pool_of(client, node)
    connection = await _done(pool.get_connection(*_PURPOSE))
    try:
        for command in commands:
            await _done(connection.send_command(*command))
            reply = await _done(connection.read_response())
        return reply
    except ResponseError:
        raise
    except BaseException:
        # The reply may still arrive.
        await _done(connection.disconnect())
        raise
    finally:
        await _done(pool.release(connection))


async def _done(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _pool_of(client: Any, node: Address) -> Any:
    found = client.get_node(*node)
    if found is None:
        # The client has not heard of it yet.
        await _done(client.nodes_manager.initialize())
        found = client.get_node(*node)
    if found is None:
        raise redis.ConnectionError(f"the client does not know the node {node[0]}:{node[1]}")
    return (
        _AsyncPool(found)
        if hasattr(found, "acquire_connection")
        else client.get_redis_connection(found).connection_pool
    )


class _AsyncPool:
    """The connections of a node of an asyncio cluster, as those of other clients."""

    def __init__(self, node: Any) -> None:
        self._node = node

    async def get_connection(self, *_: Any) -> Any:
        connection = self._node.acquire_connection()
        try:
            # redis-py 8 has renamed it.
            can_read = getattr(connection, "can_read", None) or connection.can_read_destructive
            if connection.is_connected and await can_read():
                raise redis.ConnectionError("the server has closed it")
            await connection.connect()
        except (redis.ConnectionError, OSError):
            try:
                await connection.disconnect()
                await connection.connect()
            except BaseException:
                self.release(connection)
                raise
        return connection

    def release(self, connection: Any) -> None:
        getattr(self._node, "release", self._node._free.append)(connection)
