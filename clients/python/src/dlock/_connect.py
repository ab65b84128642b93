"""Connections of our own, configured as the client of the application."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.connection import Connection, DefaultParser, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel

Address = Tuple[str, int]

#: About replies, retries and pools, which are our own.
_NOT_USED = frozenset(
    "socket_timeout socket_connect_timeout retry retry_on_timeout retry_on_error health_check_interval protocol"
    " decode_responses legacy_responses parser_class response_callbacks redis_connect_func connection_pool"
    " connection_class max_connections event_dispatcher himport_registry cache cache_config ssl".split()
)
_NOT_USED_PREFIXES = ("maint", "orig_", "oss_")
_PIPELINES = ("Pipeline", "ClusterPipeline")


class _Parser(DefaultParser):  # type: ignore[misc, valid-type]
    """Leaves errors as the server sent them: redis-py removes the first word of some."""

    parse_error = staticmethod(ResponseError)


def check_client(client: Any, is_async: bool) -> None:
    kinds = (redis.Redis, redis.RedisCluster), (redis.asyncio.Redis, redis.asyncio.RedisCluster)
    kind = type(client)
    if isinstance(client, kinds[is_async]) and kind.__name__ not in _PIPELINES:
        return
    advice = ""
    if isinstance(client, kinds[not is_async]):
        advice = ": threads use dlock.Locks" if is_async else ": coroutines use dlock.aio.Locks"
    elif isinstance(client, str):
        advice = ": use from_url"
    wanted = "redis.asyncio.Redis or redis.asyncio.RedisCluster" if is_async else "redis.Redis or redis.RedisCluster"
    # Not the client itself: a URL may have a password.
    raise TypeError(f"the client must be a {wanted}, not {kind.__module__}.{kind.__qualname__}{advice}")


class Dialer:
    """Connects to the servers of a client: sync or asyncio, of one server, Sentinels or a cluster."""

    def __init__(self, client: Any) -> None:
        #: The nodes of a cluster that are known so far. Otherwise the one server, wherever it is.
        self.nodes: List[Optional[Address]] = [None]
        self.is_cluster = hasattr(client, "nodes_manager")
        self._sentinel: Optional[Sentinel] = None
        if self.is_cluster:
            settings = dict(client.get_connection_kwargs())
            self.nodes = [(node.host, node.port) for node in client.nodes_manager.startup_nodes.values()]
            self._remap = client.nodes_manager.address_remap
            kind = SSLConnection if settings.get("ssl") else settings.get("connection_class") or Connection
            settings["redis_connect_func"] = getattr(client, "user_on_connect_func", None)
        else:
            pool = client.connection_pool
            settings, kind = pool.connection_kwargs, pool.connection_class
            if hasattr(pool, "sentinel_manager"):
                self._follow(pool)
        self._class = _class_for(kind)
        self._settings = _settings_for(client, settings)
        self._settings["socket_connect_timeout"] = min(settings.get("socket_connect_timeout") or 3.0, 3.0)
        try:
            self._new(None, 3.0)
        except TypeError as error:
            # It names the setting.
            raise TypeError(f"the locks cannot connect as the client does: {error}") from error

    def _follow(self, pool: Any) -> None:
        """Asks the Sentinels of this pool where the primary is."""
        if not pool.is_master:
            raise TypeError("the client must be one of master_for: replicas grant no locks")
        manager = pool.sentinel_manager
        self._service = pool.service_name
        self._sentinel = Sentinel([], min_other_sentinels=manager.min_other_sentinels)
        self._sentinel._force_master_ip = getattr(manager, "_force_master_ip", None)
        dialers = [Dialer(each) for each in manager.sentinels]
        self._sentinel.sentinels = [redis.Redis(connection_pool=dialer._pool(1.0)) for dialer in dialers]

    def connect(self, node: Optional[Address], timeout: float) -> Connection:
        if self._sentinel is not None:
            node = self._sentinel.discover_master(self._service)
        connection = self._new(node, timeout)
        try:
            connection.connect()
            if not self._settings.get("client_name"):
                # So that CLIENT LIST shows what it is, if the user has the right to that.
                call(connection, (b"CLIENT", b"SETNAME", b"dlock"))
        except BaseException as error:
            connection.disconnect()
            if isinstance(error, ResponseError) and "max number of clients" in str(error):
                raise redis.ConnectionError(str(error)) from error
            raise
        return connection

    def remap(self, host: str, port: int) -> Address:
        """Where a node of the cluster is for this client."""
        address: Address = self._remap((host, port)) if self._remap else (host, port)
        return address

    def _new(self, node: Optional[Address], timeout: float) -> Connection:
        settings = {**self._settings, **dict(zip(("host", "port"), node or ()))}
        # Repeating a request, and knowing that, is our own task.
        retry = Retry(NoBackoff(), 0)
        connection: Connection = self._class(
            **settings, socket_timeout=timeout, retry=retry, protocol=2, parser_class=_Parser
        )
        return connection

    def _pool(self, timeout: float) -> redis.ConnectionPool:
        return redis.ConnectionPool(connection_class=self._class, socket_timeout=timeout, **self._settings)


def _class_for(kind: Any) -> Any:
    """The class of connections for threads that does what this one of the client does."""
    if not kind.__module__.startswith("redis."):
        if issubclass(kind, redis.asyncio.connection.AbstractConnection):
            raise TypeError(f"connections of {kind.__name__} cannot be used: the locks need one for threads, too")
        return kind
    name = kind.__name__
    return SSLConnection if "SSL" in name else UnixDomainSocketConnection if "Unix" in name else Connection


def _settings_for(client: Any, settings: Any) -> Any:
    used = {
        name: value
        for name, value in settings.items()
        if name not in _NOT_USED and not name.startswith(_NOT_USED_PREFIXES)
    }
    on_connect = settings.get("redis_connect_func")
    if on_connect is not None:
        if not isinstance(client, redis.Redis):
            raise TypeError("redis_connect_func cannot be used: the locks connect with threads, and to one server")
        used["redis_connect_func"] = on_connect
    return used


def describe(connection: Connection) -> str:
    """Its address."""
    path = getattr(connection, "path", None)
    return path or f"{connection.host}:{connection.port}"


def send(connection: Connection, commands: Sequence[Sequence[Any]]) -> None:
    connection.send_packed_command([b"".join(map(_pack, commands))], check_health=False)


def _pack(command: Sequence[Any]) -> bytes:
    """A command of bytes and numbers. redis-py takes several times as long."""
    words = [word if isinstance(word, bytes) else b"%d" % word for word in command]
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


def read(connection: Connection, count: int, within: float = 3600.0) -> List[Any]:
    """As many replies, some of which may be errors. After any exception the connection is to be closed."""
    if count and within < (connection.socket_timeout or 0) and not connection.can_read(timeout=max(0, within)):
        raise redis.TimeoutError("no reply from the server in time")
    return [_reply(connection) for _ in range(count)]


def _reply(connection: Connection) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        # Without its traceback, which keeps frames alive.
        return error.with_traceback(None)


def call(connection: Connection, command: Sequence[Any]) -> Any:
    send(connection, [command])
    return read(connection, 1)[0]
