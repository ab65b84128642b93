"""Connections of our own, configured as the client of the application."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, DefaultParser, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel

Address = Tuple[str, int]

#: No reply arrived. The server may have carried out the request.
NO_REPLY = (redis.ConnectionError, redis.TimeoutError, OSError)
_SETTINGS = frozenset(
    "host port path db username password credential_provider client_name"
    " socket_keepalive socket_keepalive_options socket_type".split()
)


class _Parser(DefaultParser):  # type: ignore[misc, valid-type]
    """Leaves errors as the server sent them: redis-py removes the first word of some."""

    parse_error = staticmethod(ResponseError)


class Dialer:
    """Connects to the servers of a client: sync or asyncio, of one server, Sentinels or a cluster."""

    def __init__(self, client: Any) -> None:
        #: The nodes of a cluster that are known so far. Otherwise the one server, wherever it is.
        self.nodes: List[Optional[Address]] = [None]
        self.is_cluster = hasattr(client, "nodes_manager")
        self._sentinel: Optional[Sentinel] = None
        if self.is_cluster:
            settings = client.get_connection_kwargs()
            self.nodes = [(node.host, node.port) for node in client.nodes_manager.startup_nodes.values()]
            kind = "SSL" if settings.get("ssl") else str(settings.get("connection_class"))
        else:
            pool = client.connection_pool
            settings, kind = pool.connection_kwargs, pool.connection_class.__name__
            if hasattr(pool, "sentinel_manager"):
                self._service, dialers = pool.service_name, [Dialer(each) for each in pool.sentinel_manager.sentinels]
                self._sentinel = Sentinel([])
                self._sentinel.sentinels = [redis.Redis(connection_pool=dialer._pool(1.0)) for dialer in dialers]
        # The classes of asyncio clients have the names of the sync ones.
        self._class: Any = (
            SSLConnection if "SSL" in kind else UnixDomainSocketConnection if "Unix" in kind else Connection
        )
        self._settings = {name: settings[name] for name in settings if name in _SETTINGS or name.startswith("ssl_")}
        self._settings["socket_connect_timeout"] = min(settings.get("socket_connect_timeout") or 3.0, 3.0)

    def connect(self, node: Optional[Address], timeout: float) -> Connection:
        if self._sentinel is not None:
            node = self._sentinel.discover_master(self._service)
        settings = dict(zip(("host", "port"), node or ()))
        # Repeating a request, and knowing that, is our own task.
        retry = Retry(NoBackoff(), 0)
        connection: Connection = self._class(
            **{**self._settings, **settings}, socket_timeout=timeout, retry=retry, protocol=2, parser_class=_Parser
        )
        try:
            connection.connect()
        except ResponseError as error:
            raise redis.ConnectionError(str(error)) from error
        return connection

    def _pool(self, timeout: float) -> redis.ConnectionPool:
        return redis.ConnectionPool(connection_class=self._class, socket_timeout=timeout, **self._settings)


def send(connection: Connection, commands: Sequence[Sequence[Any]]) -> None:
    connection.send_packed_command(connection.pack_commands(commands), check_health=False)


def read(connection: Connection, count: int, within: float = 3600.0) -> List[Any]:
    """As many replies, some of which may be errors. After any exception the connection is to be closed."""
    if count and within < (connection.socket_timeout or 0) and not connection.can_read(timeout=max(0, within)):
        raise redis.TimeoutError("no reply in time")
    return [_reply(connection) for _ in range(count)]


def _reply(connection: Connection) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


def call(connection: Connection, command: Sequence[Any]) -> Any:
    send(connection, [command])
    return read(connection, 1)[0]


def word_of(reply: Any) -> str:
    """The first word of an error of the server, otherwise nothing."""
    return str(reply).split(" ")[0] if isinstance(reply, ResponseError) else ""
