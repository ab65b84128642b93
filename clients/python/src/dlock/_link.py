"""The two connections to one server, each with a thread that exists while it is needed."""

from __future__ import annotations

import contextlib
import queue
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Tuple, Union

from redis.connection import AbstractConnection, Connection
from redis.exceptions import ResponseError

from ._connect import NO_REPLY, Address, call, read, send, word_of
from ._hold import Hold, Stage, clock

if TYPE_CHECKING:
    from ._core import Core

    #: None: the connection is to be opened.
    Taken = Union[Connection, "_Sent", None]
    Idle = queue.SimpleQueue[Taken]

_ASKING = ("ASKING",)


class _Sent(NamedTuple):
    """Requests whose replies are still to be read."""

    connection: Connection
    holds: List[Hold]
    wanted: List[Tuple[Stage, Any]]
    commands: List[Any]
    inbox: str
    at: float


class Link:
    """One server. `core.lock` guards all but the connections."""

    sender: Optional[threading.Thread] = None
    reader: Optional[threading.Thread] = None
    is_open = is_stale = False
    cursor = 0

    def __init__(self, core: Core, node: Optional[Address]) -> None:
        self.core, self.node, self.host = core, node, node[0] if node else ""
        #: Has the connection for requests, which one thread at a time takes out.
        self.idle: Idle = queue.SimpleQueue()
        self.idle.put(None)
        #: What is to be sent, and None at the end.
        self.outbox: queue.SimpleQueue[Optional[List[Hold]]] = queue.SimpleQueue()
        #: The server does not know this name before the reader has opened the inbox.
        self.inbox = secrets.token_hex(16)

    def submit(self, *holds: Hold) -> None:
        """Has the sender send what the holds need, together with all else."""
        for hold in holds:
            hold.link = self
        self.outbox.put(list(holds))
        self.sender = self.sender or self.core.spawn(self._send_all)

    def send_directly(self, hold: Hold, within: Optional[float]) -> bool:
        """Sends it in this thread, which is faster, unless others come first or it has to connect.

        Without a time to wait for it, the sender reads the reply.
        """
        idle = self.idle
        if not self.outbox.empty():
            return False
        try:
            taken = idle.get_nowait()
        except queue.Empty:
            return False
        if not isinstance(taken, AbstractConnection):
            idle.put(taken)
            return False
        hold.link = self
        self._exchange(idle, taken, [hold], within)
        return True

    def close(self) -> None:
        """After what is to be sent, the connections end."""
        self.outbox.put(None)
        self.sender = self.sender or self.core.spawn(self._send_all)

    def _send_all(self) -> None:
        while (holds := self.outbox.get()) is not None:
            idle, taken = self._wait_for_connection()
            batch = {hold.number: hold for hold in holds}
            while len(batch) < 1000 and not self.outbox.empty():
                more = self.outbox.get()
                if more is None:
                    self.outbox.put(None)
                    break
                batch.update((hold.number, hold) for hold in more)
            if batch:
                self._exchange(idle, taken, [batch[number] for number in sorted(batch)])
            else:
                idle.put(taken)
        _, connection = self._wait_for_connection()
        if connection is not None:
            with contextlib.suppress(*NO_REPLY):
                # Ends the inbox, and with it the call of the reader.
                call(connection, ("DLOCK.GRANTS", self.inbox, self.cursor, "TTL", 0))
            connection.disconnect()

    def _wait_for_connection(self) -> Tuple[Idle, Optional[Connection]]:
        idle = self.idle
        with contextlib.suppress(queue.Empty):
            while isinstance(taken := idle.get(timeout=4.0), _Sent):
                self._exchange(idle, taken, taken.holds)
            return idle, taken
        # Its user was interrupted, or is paused in a signal handler. What it puts back is not used any more.
        self.idle = queue.SimpleQueue()
        return self.idle, None

    def _exchange(self, idle: Idle, taken: Taken, holds: List[Hold], within: Optional[float] = 3.0) -> None:
        """One round trip for these holds, in their order."""
        core = self.core
        connection: Optional[Connection] = None
        kept: Taken = None
        try:
            if isinstance(taken, _Sent):
                connection, sent = taken.connection, taken
            else:
                connection = taken or core.dialer.connect(self.node, 3.0)
                if taken is None:
                    core.on_connected(self)
                sent = self._send(connection, holds)
            if within is None:
                kept = sent
            else:
                self._receive(sent, within)
                kept = None if self.is_stale else connection
        except BaseException as error:
            with core.lock:
                core.on_unreachable(self)
                for hold in holds:
                    core.on_no_reply(hold, error)
            if not isinstance(error, Exception):
                raise
        finally:
            if kept is None and connection is not None:
                connection.disconnect()
                self.is_stale = False
            idle.put(kept)
            if within is None:
                self.submit()

    def _send(self, connection: Connection, holds: List[Hold]) -> _Sent:
        with self.core.lock:
            # While the inbox is being opened, requests wait. Then they are sent, the oldest first.
            opens = self.reader is not None and not self.is_open
            holds = [
                hold
                for hold in holds
                if hold.stage is not Stage.OVER and not (opens and hold.waits and hold.stage is Stage.WAITING)
            ]
            wanted, commands = [], []
            for hold in holds:
                hold.sends, hold.due_at = hold.sends + 1, float("inf")
                wanted.append((hold.stage, hold.command(self.inbox)))
                commands += [*([_ASKING] if hold.asks is self else []), wanted[-1][1]]
            sent = _Sent(connection, holds, wanted, commands, self.inbox, clock())
        send(connection, commands)
        return sent

    def _receive(self, sent: _Sent, within: float) -> None:
        replies = read(sent.connection, len(sent.commands), within)
        replies = [reply for command, reply in zip(sent.commands, replies) if command is not _ASKING]
        core = self.core
        with core.lock:
            for hold, wanted, reply in zip(sent.holds, sent.wanted, replies):
                hold.asks = None
                # Otherwise it wants something else by now, and that is or will be sent.
                if (hold.stage, hold.command(sent.inbox)) == wanted:
                    try:
                        core.on_reply(hold, reply, sent.at, self, sent.inbox)
                    except (TypeError, ValueError):
                        error = ResponseError(f"ERR unexpected reply {reply!r}")
                        core.on_reply(hold, error, sent.at, self, sent.inbox)

    def want_inbox(self, inbox: str) -> None:
        """The server does not know this inbox."""
        if inbox == self.inbox:
            self.is_open = False
        self.reader = self.reader or self.core.spawn(self._read_all)

    def waiting(self) -> List[Hold]:
        holds = self.core.table.values()
        return [hold for hold in holds if hold.link is self and hold.stage is Stage.WAITING and hold.waits]

    def _read_all(self) -> None:
        """Reads answers until nothing has waited during a whole call."""
        core, connection, sent_at, pause = self.core, None, 0.0, 0.0
        is_used = True
        while not core.is_stopped and (is_used or self._is_waited_for()):
            with core.lock:
                if not self.is_open:
                    # A new name: requests in flight with the old one cannot be queued before older ones.
                    self.inbox, self.cursor, sent_at = secrets.token_hex(16), 0, 0.0
                inbox, cursor = self.inbox, self.cursor
            # A repeated call may get answers whose leases began when it was sent first.
            sent_at = sent_at or clock()
            try:
                if connection is None:
                    connection = core.dialer.connect(self.node, 4.0)
                block = ("BLOCK", 2000) if cursor else ()
                reply = call(connection, ("DLOCK.GRANTS", inbox, cursor, *block))
                if isinstance(reply, ResponseError):
                    raise reply
                next_cursor, waited_ms, answers = reply
            except Exception as error:
                is_used, pause = False, min(1.0, 2 * pause + 0.01)
                if self._on_failure(error) and connection is not None:
                    connection.disconnect()
                    connection = None
                time.sleep(pause)
                continue
            with core.lock:
                self.cursor = next_cursor
                is_used = bool(answers) or cursor == 0
                if cursor == 0:
                    self.is_open = True
                    self.submit(*self.waiting())
                for answer in answers:
                    core.on_answer(answer, sent_at, waited_ms)
            sent_at = pause = 0.0
        if connection is not None:
            with contextlib.suppress(*NO_REPLY):
                call(connection, ("DLOCK.GRANTS", inbox, self.cursor, "TTL", 0))
            connection.disconnect()

    def _is_waited_for(self) -> bool:
        with self.core.lock:
            if not self.waiting():
                # The server does not know the next name, so whatever has to wait starts a reader.
                self.reader, self.is_open, self.inbox = None, False, secrets.token_hex(16)
            return self.reader is not None

    def _on_failure(self, error: Exception) -> bool:
        """After a GRANTS that failed: whether to connect again, perhaps to another server."""
        core, word = self.core, word_of(error)
        with core.lock:
            if word in ("NOINBOX", "BUSYINBOX", "READONLY"):
                self.is_open = False
            elif word and word not in core.TRANSIENT and not self.is_open:
                for hold in self.waiting():
                    core.fail(hold, error)
            if word not in ("", "READONLY"):
                return False
            core.on_unreachable(self)
            for hold in self.waiting():
                if core.route(hold) is not self:
                    core.submit(hold)
        return True
