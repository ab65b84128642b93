"""The two connections to one server, each with a thread that exists while it is needed."""

from __future__ import annotations

import contextlib
import queue
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any, List, Optional

from redis.connection import Connection
from redis.exceptions import ResponseError

from ._connect import NO_REPLY, Address, call, word_of
from ._hold import Hold, Stage, clock

if TYPE_CHECKING:
    from ._core import Core

_ASKING = ("ASKING",)


class Link:
    """One server. `core.lock` guards all but the connections, `mutex` that for requests."""

    requests: Optional[Connection] = None
    sender: Optional[threading.Thread] = None
    reader: Optional[threading.Thread] = None
    is_open = False
    cursor = 0

    def __init__(self, core: Core, node: Optional[Address]) -> None:
        self.core, self.node, self.host = core, node, node[0] if node else ""
        self.mutex = threading.Lock()
        #: What is to be sent, and None at the end.
        self.outbox: queue.SimpleQueue[Optional[Hold]] = queue.SimpleQueue()
        #: The server does not know this name before the reader has opened the inbox.
        self.inbox = secrets.token_hex(16)

    def submit(self, hold: Hold) -> None:
        """Has the sender send what the hold needs, together with all else."""
        hold.link = self
        self.outbox.put(hold)
        self.sender = self.sender or self.core.spawn(self._send_all)

    def send_directly(self, hold: Hold, until: float) -> bool:
        """Sends it in this thread, which is faster, unless others come first or it has to connect."""
        if self.requests is None or not self.outbox.empty() or not self.mutex.acquire(blocking=False):
            return False
        try:
            hold.link = self
            self._send([hold], until - clock())
        finally:
            self.mutex.release()
        return True

    def close(self) -> None:
        """After what is to be sent, the connections end."""
        self.outbox.put(None)
        self.sender = self.sender or self.core.spawn(self._send_all)

    def _send_all(self) -> None:
        while (hold := self.outbox.get()) is not None:
            with self.mutex:
                batch = {hold.number: hold}
                while len(batch) < 1000 and not self.outbox.empty():
                    hold = self.outbox.get()
                    if hold is None:
                        self.outbox.put(None)
                        break
                    batch[hold.number] = hold
                self._send([batch[number] for number in sorted(batch)])
        with self.mutex, contextlib.suppress(*NO_REPLY):
            if self.requests is not None:
                # Ends the inbox, and with it the call of the reader.
                call(self.requests, [("DLOCK.GRANTS", self.inbox, self.cursor, "TTL", 0)])
                self.reconnect()

    def _send(self, holds: List[Hold], within: float = 3.0) -> None:
        """One round trip for these holds, in their order."""
        core = self.core
        with core.lock:
            inbox, sent = self.inbox, []
            for hold in holds:
                # While the inbox is being opened, requests wait. Then they are sent, the oldest first.
                opens = self.reader is not None and not self.is_open
                if hold.stage is not Stage.OVER and not (opens and hold.waits and hold.stage is Stage.WAITING):
                    hold.sends, hold.due_at = hold.sends + 1, float("inf")
                    sent.append((hold, hold.stage, hold.number, hold.command(inbox)))
        sent_at = clock()
        commands = [each for hold, *_, command in sent for each in ([_ASKING] if hold.asks is self else []) + [command]]
        try:
            replies = self._exchange(commands, within)
        except BaseException as error:
            with core.lock:
                core.on_unreachable(self)
                for hold, *_ in sent:
                    core.on_no_reply(hold, error)
            if not isinstance(error, NO_REPLY):
                raise
            return
        replies = [reply for command, reply in zip(commands, replies) if command is not _ASKING]
        with core.lock:
            for (hold, stage, number, _), reply in zip(sent, replies):
                hold.asks = None
                # Otherwise it wants something else by now, and that is or will be sent.
                if (hold.stage, hold.number) == (stage, number):
                    core.on_reply(hold, reply, sent_at, inbox)

    def _exchange(self, commands: List[Any], within: float) -> List[Any]:
        if self.requests is None:
            self.requests = self.core.dialer.connect(self.node, 3.0)
            self.core.on_connected(self)
        try:
            return call(self.requests, commands, within)
        except BaseException:
            self.requests = None
            raise

    def reconnect(self) -> None:
        """Sentinels may know of another server."""
        if self.requests is not None:
            self.requests.disconnect()
            self.requests = None

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
                reply = call(connection, [("DLOCK.GRANTS", inbox, cursor, *block)])[0]
                if isinstance(reply, ResponseError):
                    raise reply
            except (*NO_REPLY, ResponseError) as error:
                is_used, pause = False, min(1.0, 2 * pause + 0.01)
                if self._on_failure(error) and connection is not None:
                    connection.disconnect()
                    connection = None
                time.sleep(pause)
                continue
            with core.lock:
                self.cursor, waited_ms, answers = reply
                is_used = bool(answers) or cursor == 0
                if cursor == 0:
                    self.is_open = True
                    for hold in self.waiting():
                        self.submit(hold)
                for answer in answers:
                    core.on_answer(answer, sent_at, waited_ms)
            sent_at = pause = 0.0
        if connection is not None:
            with contextlib.suppress(*NO_REPLY):
                call(connection, [("DLOCK.GRANTS", inbox, self.cursor, "TTL", 0)])
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
