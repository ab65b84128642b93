"""The two connections to one server, each with a thread that exists while it is needed."""

from __future__ import annotations

import contextlib
import queue
import secrets
import threading
import time
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, List, Optional

from redis.connection import Connection
from redis.exceptions import RedisError, ResponseError

from ._connect import Address, Wire, word_of
from ._hold import Hold, Stage, clock

if TYPE_CHECKING:
    from ._core import Core


_ASKING = ("ASKING",)


class Link:
    """One server. `core.lock` guards all but the connections."""

    sender: Optional[threading.Thread] = None
    reader: Optional[threading.Thread] = None

    def __init__(self, core: Core, node: Optional[Address]) -> None:
        self.core, self.node, self.host = core, node, node[0] if node else ""
        #: For requests.
        self.wire = Wire(self._connect)
        #: What is to be sent. None wakes the sender at the end.
        self.outbox: queue.SimpleQueue[Optional[Hold]] = queue.SimpleQueue()
        #: The server does not know this name before the reader has opened the inbox.
        self.inbox = secrets.token_hex(16)

    def submit(self, hold: Hold) -> None:
        """Has the sender send what the hold needs, together with all else."""
        hold.link = self
        self.outbox.put(hold)
        self.sender = self.sender or self.core.spawn(self._send_all)

    # Requests.

    def send_directly(self, hold: Hold, within: float) -> bool:
        """Sends it in this thread, which is faster, unless others come first or it has to connect."""
        wire = self.wire
        if not self.outbox.empty() or not wire.turn.acquire(blocking=False):
            return False
        if wire.connection is None:
            wire.turn.release()
            return False
        hold.link = self
        self._exchange(wire, [hold], within)
        return True

    def _send_all(self) -> None:
        while True:
            batch = {self.outbox.get()}
            if not self.wire.turn.acquire(timeout=4.0):
                # Its user was interrupted, or is paused in a signal handler.
                self.wire = Wire(self._connect)
                self.wire.turn.acquire()
            if self.core.is_stopped:
                return self.wire.close()
            while len(batch) < 1000 and not self.outbox.empty():
                batch.add(self.outbox.get())
            self._exchange(self.wire, sorted(filter(None, batch), key=attrgetter("number")))

    def _connect(self) -> Connection:
        connection = self.core.dialer.connect(self.node, 3.0)
        self.core.on_connected(self)
        return connection

    def _exchange(self, wire: Wire, holds: List[Hold], within: float = 3.0) -> None:
        """One round trip for these holds, in their order. This thread has the turn, and ends it."""
        core = self.core
        try:
            self._round_trip(wire, holds, within)
        except BaseException as error:
            with core.lock:
                core.on_unreachable(self)
                for hold in holds:
                    core.on_no_reply(hold, error)
            if not isinstance(error, Exception):
                raise
        finally:
            wire.turn.release()

    def _round_trip(self, wire: Wire, holds: List[Hold], within: float) -> None:
        core, commands = self.core, []
        # First, because it takes time, in which holds change.
        wire.open()
        with core.lock:
            inbox, sent_at = self.inbox, clock()
            requests = [(hold, hold.command(inbox)) for hold in holds if hold.stage is not Stage.OVER]
            for hold, command in requests:
                hold.due_at = inf
                commands += [_ASKING, command] if hold.asks is self else [command]
        replies = wire.exchange(commands, within)
        replies = [reply for command, reply in zip(commands, replies) if command is not _ASKING]
        with core.lock:
            for (hold, command), reply in zip(requests, replies):
                hold.asks = None
                # Otherwise it wants something else by now, and that is or will be sent.
                if hold.command(inbox) == command:
                    try:
                        core.on_reply(hold, reply, sent_at)
                    except (TypeError, ValueError):
                        core.on_reply(hold, ResponseError(f"ERR unexpected reply {reply!r}"), sent_at)
        if any(word_of(reply) == "READONLY" for reply in replies):
            # Sentinels may know of another server.
            wire.close()

    # Answers.

    def open_inbox(self) -> None:
        """The server does not know that of a request. When the next one is open, all that waits is sent again."""
        self.reader = self.reader or self.core.spawn(self._read_all)

    def _waiting(self) -> List[Hold]:
        holds = self.core.table.values()
        return [hold for hold in holds if hold.link is self and hold.stage is Stage.WAITING and hold.waits]

    def _is_waited_for(self) -> bool:
        with self.core.lock:
            if not self._waiting():
                # The server does not know the next name, so whatever has to wait starts a reader.
                self.reader, self.inbox = None, secrets.token_hex(16)
            return self.reader is not None

    def _read_all(self) -> None:
        """Reads answers until nothing has waited during a whole call."""
        core, inbox, cursor, sent_at, pause, is_used = self.core, "", 0, 0.0, 0.0, True
        wire = Wire(lambda: core.dialer.connect(self.node, 4.0))
        while not core.is_stopped and (is_used or self._is_waited_for()):
            if not cursor:
                # A new name: requests in flight with the old one cannot be queued before older ones.
                inbox, sent_at = secrets.token_hex(16), 0.0
            # A repeated call may get answers whose leases began when it was sent first.
            sent_at = sent_at or clock()
            try:
                block = ("BLOCK", 2000) if cursor else ()
                [reply] = wire.exchange([("DLOCK.GRANTS", inbox, cursor, *block)])
                if isinstance(reply, ResponseError):
                    raise reply
                next_cursor, waited_ms, answers = reply
            except Exception as error:
                word, is_used, pause = word_of(error), False, min(1.0, 2 * pause + 0.01)
                if word in ("NOINBOX", "BUSYINBOX"):
                    cursor = 0
                elif word in ("", "READONLY"):
                    wire.close()
                    self._follow()
                elif word not in core.TRANSIENT and not cursor:
                    self._fail(error)
                time.sleep(pause)
                continue
            with core.lock:
                is_used = bool(answers) or not cursor
                if not cursor:
                    self.inbox = inbox
                    for hold in self._waiting():
                        self.submit(hold)
                for answer in answers:
                    core.on_answer(answer, sent_at, waited_ms)
            cursor, sent_at, pause = next_cursor, 0.0, 0.0
        if wire.connection is not None:
            with contextlib.suppress(RedisError, OSError):
                wire.exchange([("DLOCK.GRANTS", inbox, cursor, "TTL", 0)])
            wire.close()

    def _follow(self) -> None:
        """The locks may be on another server now."""
        core = self.core
        with core.lock:
            core.on_unreachable(self)
            for hold in self._waiting():
                if core.route(hold) is not self:
                    core.submit(hold)

    def _fail(self, error: Exception) -> None:
        """It cannot be waited for, for example without the permission."""
        with self.core.lock:
            for hold in self._waiting():
                self.core.fail(hold, error)
