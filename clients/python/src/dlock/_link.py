"""The two connections to one server, each with a thread that exists while it is needed."""

from __future__ import annotations

import contextlib
import queue
import secrets
import threading
import time
from math import inf
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Protocol, Tuple, Union

from redis.connection import AbstractConnection, Connection
from redis.exceptions import ResponseError

from ._connect import Address, Dialer, call, describe, read, send
from ._errors import NO_REPLY, is_temporary, no_reply, word_of
from ._hold import Hold, Stage, clock

if TYPE_CHECKING:
    #: None: the connection is to be opened.
    Taken = Union[Connection, "_Sent", None]
    Idle = queue.SimpleQueue[Taken]

_ASKING = (b"ASKING",)
#: How long a call of GRANTS waits, and after how long without a reply the server is silent.
_BLOCK_MS, _SILENCE = 2000, 2.5


class Session(Protocol):
    """Whom a link tells what the server says."""

    dialer: Dialer
    #: Guards all but the connections.
    lock: threading.RLock
    table: Dict[int, Hold]
    is_stopped: bool

    def spawn(self, run: Callable[[], None], name: str) -> threading.Thread: ...
    def on_connected(self, link: Link) -> None: ...
    def on_unreachable(self, link: Link) -> None: ...
    def on_no_reply(self, hold: Hold, error: BaseException) -> None: ...
    def on_reply(self, hold: Hold, reply: Any, sent_at: float, link: Link, inbox: bytes) -> None: ...
    def on_answer(self, answer: List[Any], since: float, waited_ms: int) -> None: ...
    def fail(self, hold: Hold, error: Optional[BaseException]) -> None: ...
    def reroute(self, link: Link) -> None: ...


class _Sent(NamedTuple):
    """Requests whose replies are still to be read."""

    connection: Connection
    holds: List[Hold]
    wanted: List[Tuple[Any, ...]]
    commands: List[Any]
    inbox: bytes
    at: float


class Link:
    """One server."""

    sender: Optional[threading.Thread] = None
    reader: Optional[threading.Thread] = None
    is_open = is_stale = False
    cursor = 0
    #: Where it is, once it is connected.
    address = ""
    #: When the call of the reader was sent that has no reply yet, and why the last one failed.
    asked_at = inf
    trouble: Optional[BaseException] = None

    def __init__(self, core: Session, node: Optional[Address]) -> None:
        self.core, self.node, self.host = core, node, node[0] if node else ""
        #: Has the connection for requests, which one thread at a time takes out.
        self.idle: Idle = queue.SimpleQueue()
        self.idle.put(None)
        #: What is to be sent, and None at the end.
        self.outbox: queue.SimpleQueue[Optional[List[Hold]]] = queue.SimpleQueue()
        #: The server does not know this name before the reader has opened the inbox.
        self.inbox = _new_inbox()

    def submit(self, *holds: Hold) -> None:
        """Has the sender send what the holds need, together with all else."""
        for hold in holds:
            hold.link = self
        self.outbox.put(list(holds))
        self.sender = self.sender or self.core.spawn(self._send_all, "dlock sender")

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
        self.sender = self.sender or self.core.spawn(self._send_all, "dlock sender")

    def silence(self) -> Optional[BaseException]:
        """Why the reader gets no answers."""
        if self.trouble is None and clock() - self.asked_at > _SILENCE:
            return no_reply()
        return self.trouble

    # The sender.

    def _send_all(self) -> None:
        while self._send_batch():
            pass
        _, connection = self._wait_for_connection()
        if connection is not None:
            self._end_inbox(connection, self.inbox)

    def _send_batch(self) -> bool:
        """A function of its own: while the thread sleeps, no local variable of it keeps a lock or a client alive."""
        holds = self.outbox.get()
        if holds is None:
            return False
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
        return True

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
                connection = taken or self._connect(3.0)
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

    def _connect(self, timeout: float) -> Connection:
        connection = self.core.dialer.connect(self.node, timeout)
        self.address = describe(connection)
        return connection

    def _send(self, connection: Connection, holds: List[Hold]) -> _Sent:
        with self.core.lock:
            # While the inbox is being opened, requests wait. Then they are sent, the oldest first.
            opens = self.reader is not None and not self.is_open
            holds = [
                hold
                for hold in holds
                if hold.stage is not Stage.OVER and not (opens and hold.terms.waits and hold.stage is Stage.WAITING)
            ]
            wanted, commands = [], []
            for hold in holds:
                hold.sends, hold.due_at = hold.sends + 1, inf
                wanted.append(hold.wanted())
                commands += [*([_ASKING] if hold.asks is self else []), hold.command(self.inbox)]
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
                if hold.wanted() == wanted:
                    try:
                        core.on_reply(hold, reply, sent.at, self, sent.inbox)
                    except (TypeError, ValueError):
                        error = ResponseError(f"ERR unexpected reply {reply!r}")
                        core.on_reply(hold, error, sent.at, self, sent.inbox)

    # The reader.

    def want_inbox(self, inbox: bytes) -> None:
        """The server does not know this inbox."""
        if inbox == self.inbox:
            self.is_open = False
        self.reader = self.reader or self.core.spawn(self._read_all, "dlock reader")

    def waiting(self) -> List[Hold]:
        holds = self.core.table.values()
        return [hold for hold in holds if hold.link is self and hold.stage is Stage.WAITING and hold.terms.waits]

    def _read_all(self) -> None:
        """Reads answers until nothing has waited during a whole call."""
        core, connection, sent_at, pause = self.core, None, 0.0, 0.0
        is_used = True
        while not core.is_stopped and (is_used or self._is_waited_for()):
            with core.lock:
                if not self.is_open:
                    # A new name: requests in flight with the old one cannot be queued before older ones.
                    self.inbox, self.cursor, sent_at = _new_inbox(), 0, 0.0
                inbox, cursor = self.inbox, self.cursor
            # A repeated call may get answers whose leases began when it was sent first.
            sent_at = sent_at or clock()
            try:
                if connection is None:
                    connection, self.trouble = self._connect(4.0), None
                is_used = self._read_answers(connection, inbox, cursor, sent_at)
                sent_at = pause = 0.0
            except Exception as error:
                is_used, pause = False, min(1.0, 2 * pause + 0.01)
                if self._on_failure(error) and connection is not None:
                    connection.disconnect()
                    connection = None
                time.sleep(pause)
        self.asked_at, self.trouble = inf, None
        if connection is not None:
            self._end_inbox(connection, inbox)

    def _read_answers(self, connection: Connection, inbox: bytes, cursor: int, sent_at: float) -> bool:
        """One call of GRANTS. Whether it was of use."""
        core, self.asked_at = self.core, clock()
        block = (b"BLOCK", _BLOCK_MS) if cursor else ()
        reply = call(connection, (b"DLOCK.GRANTS", inbox, cursor, *block))
        self.asked_at = inf
        if isinstance(reply, ResponseError):
            raise reply
        next_cursor, waited_ms, answers = reply
        with core.lock:
            self.cursor, self.trouble = next_cursor, None
            if cursor == 0:
                self.is_open = True
                self.submit(*self.waiting())
            for answer in answers:
                core.on_answer(answer, sent_at, waited_ms)
        return bool(answers) or cursor == 0

    def _end_inbox(self, connection: Connection, inbox: bytes) -> None:
        """And with it the call of the reader."""
        with contextlib.suppress(*NO_REPLY):
            call(connection, (b"DLOCK.GRANTS", inbox, self.cursor, b"TTL", 0))
        connection.disconnect()

    def _is_waited_for(self) -> bool:
        with self.core.lock:
            if not self.waiting():
                # The server does not know the next name, so whatever has to wait starts a reader.
                self.reader, self.is_open, self.inbox = None, False, _new_inbox()
            return self.reader is not None

    def _on_failure(self, error: Exception) -> bool:
        """After a GRANTS that failed: whether to connect again, perhaps to another server."""
        core, word = self.core, word_of(error)
        with core.lock:
            if word in ("NOINBOX", "BUSYINBOX", "READONLY"):
                self.is_open = False
            elif word and not is_temporary(word, may_be_full=True) and not self.is_open:
                for hold in self.waiting():
                    core.fail(hold, error)
            self.asked_at = inf
            if word not in ("NOINBOX", "BUSYINBOX", "UNBLOCKED"):
                self.trouble = error.with_traceback(None)
            if word not in ("", "READONLY"):
                return False
            core.on_unreachable(self)
            core.reroute(self)
        return True


def _new_inbox() -> bytes:
    return secrets.token_hex(16).encode()
