"""All acquisitions of a client in this process, and the thread that watches their time."""

from __future__ import annotations

import itertools
import os
import queue
import secrets
import socket
import sys
import threading
import time
from math import inf
from typing import Any, Callable, Dict, List, Optional, Tuple

from redis.crc import key_slot
from redis.exceptions import LockError, RedisError, ResponseError

from ._connect import Address, Dialer
from ._errors import BROKEN, LOST, ROUTED, is_temporary, lost, named, node_of_cluster, without_module, word_of
from ._hold import Hold, Stage, clock, deadline_after
from ._link import Link
from ._options import terms

#: A lease that is shorter than the way to the server never arrives in time.
_MAX_LATE_GRANTS = 10
#: A release is repeated for so long, then goes on in the background.
_RELEASE_TIME = 10.0
#: After so long the program is told that it waits, and for whom; but not again within the next time, of any lock.
_TOLD_AFTER, _TOLD_EVERY = 1.0, 10.0


class Core:
    """Knows each acquisition until its last reply. Without a reply, the same request is sent again."""

    def __init__(self, client: Any) -> None:
        self.dialer = Dialer(client)
        self.table: Dict[int, Hold] = {}
        self.start()

    def start(self) -> None:
        """Also in the child after a fork: with other names, other connections, and nothing held."""
        for hold in self.table.values():
            hold.stage, hold.reason = Stage.OVER, "FORKED"
        self.id = secrets.token_hex(16)
        self.name = f"{socket.gethostname()}:{os.getpid()}:{self.id}"
        self.numbers = itertools.count(1)
        self.lock = threading.RLock()
        self.table = {}
        self.is_stopped = self.has_connected = False
        self.nodes = list(self.dialer.nodes)
        self.links: Dict[Optional[Address], Link] = {}
        self.slots: Dict[int, Link] = {}
        #: The thread that watches the time, and when it looks at it.
        self.timer: Optional[threading.Thread] = None
        self.wake = threading.Condition(self.lock)
        self.wakes_at = inf
        #: When the program may be told again that it waits.
        self.tells_at = 0.0
        #: What is to be called by the thread for events, and None to wake it.
        self.calls: queue.SimpleQueue[Optional[Tuple[Callable[[Any], object], Any]]] = queue.SimpleQueue()
        self.caller: Optional[threading.Thread] = None

    @staticmethod
    def spawn(run: Callable[[], None], name: str) -> threading.Thread:
        """A thread that an unexpected error does not end, because leases depend on it."""

        def run_on() -> None:
            while True:
                try:
                    return run()
                except Exception:
                    threading.excepthook(threading.ExceptHookArgs([*sys.exc_info(), thread]))
                    time.sleep(0.1)

        thread = threading.Thread(target=run_on, name=name, daemon=True)
        thread.start()
        return thread

    # Operations of callers.

    def enlist(self, hold: Hold, prefix: str) -> None:
        """Gives it a name of this process, once: a second acquisition could not be told from a retry of the first."""
        with self.lock:
            if hold.number:
                raise named(
                    LockError(f"the lock {hold.name} is acquired once only: make one for each acquisition"), hold.name
                )
            hold.number, hold.process, hold.began_at = next(self.numbers), self.id, clock()
            hold.owner = hold.terms.owner or f"{prefix}{self.name}:{hold.number}"

    def begin(self, hold: Hold, stage: Stage) -> Link:
        """Begins an operation: WAITING to acquire, HELD to extend, RELEASING to release. It is not sent yet."""
        with self.lock:
            if self.is_stopped:
                hold.reason = hold.reason or "CLOSED"
                raise hold.lost_error()
            if stage in (Stage.HELD, Stage.RELEASING) and not hold.is_held:
                self.lose(hold, hold.expiry())
                raise hold.lost_error()
            # Before it is sent, because the answer may overtake the reply.
            self.table[hold.number], hold.link = hold, self.route(hold)
            hold.stage, hold.is_pending, hold.error = stage, True, None
            if stage is Stage.RELEASING:
                hold.reason, hold.deadline = "RELEASED", min(hold.deadline, clock() + _RELEASE_TIME)
            link: Link = hold.link
            return link

    def abandon(self, hold: Hold) -> None:
        """The caller is gone. Its request is given back, or its release goes on, in the background."""
        with self.lock:
            hold.waiters.clear()
            if hold.stage in (Stage.WAITING, Stage.HELD, Stage.PROBING):
                self._withdraw(hold)
            elif hold.stage is Stage.RELEASING:
                self.submit(hold)

    def submit(self, hold: Hold) -> None:
        with self.lock:
            self.route(hold).submit(hold)

    def on_query_error(self, hold: Hold, error: RedisError) -> None:
        word = word_of(error)
        if word in LOST:
            with self.lock:
                self.lose(hold, word)
            raise hold.lost_error() from error

    def call(self, function: Callable[[Any], object], argument: Any) -> None:
        """Calls it in a thread of its own, in order, so that it delays no lease."""
        with self.lock:
            self.calls.put((function, argument))
            self.caller = self.caller or self.spawn(self._call_all, "dlock events")

    def _call_all(self) -> None:
        while self._call_next():
            pass

    def _call_next(self) -> bool:
        try:
            # What waited at the end has events, too.
            call = self.calls.get(timeout=1.0 if self.is_stopped else None)
        except queue.Empty:
            return False
        if call is not None:
            function, argument = call
            function(argument)
        return True

    def settle(self, within: float) -> None:
        """Waits until all that was released or given back is, and all events are told."""
        end, ending = clock() + within, (Stage.RELEASING, Stage.GIVEN_BACK)
        while clock() < end and (
            any(hold.stage in ending for hold in list(self.table.values())) or not self.calls.empty()
        ):
            time.sleep(0.002)

    def withdraw(self) -> None:
        """Ends the acquisitions that wait. A lock that is granted meanwhile is released."""
        with self.lock:
            for hold in list(self.table.values()):
                if hold.stage is Stage.WAITING:
                    hold.reason = "CLOSED"
                    self._finish(hold, hold.lost_error())
                    self._withdraw(hold)

    def stop(self) -> None:
        """Has the threads end, and the connections with them."""
        with self.lock:
            self.is_stopped = True
            for hold in list(self.table.values()):
                was_held = hold.stage is Stage.HELD
                if hold.stage is not Stage.GIVEN_BACK:
                    hold.reason = "CLOSED"
                hold.stage = Stage.OVER
                self._finish(hold, hold.lost_error())
                if was_held:
                    self._tell_lost(hold)
            self.wake.notify()
            self.calls.put(None)
            for link in self.links.values():
                link.close()

    # Routes.

    def route(self, hold: Hold) -> Link:
        slot = key_slot(hold.raw_key) if self.dialer.is_cluster else 0
        return hold.asks or self.slots.get(slot) or self._link(self.nodes[0])

    def _link(self, node: Optional[Address]) -> Link:
        if node not in self.links:
            self.links[node] = Link(self, node)
            self.nodes += [] if node in self.nodes else [node]
        return self.links[node]

    def follow(self, hold: Hold, slot: int, host: str, port: int, is_moved: bool) -> None:
        """The node of a cluster has said that this one has the slot now, or for the next request only."""
        with self.lock:
            other = self._link(self.dialer.remap(host or hold.link.host, port))
            if is_moved:
                self.slots[slot] = other
            else:
                hold.asks = other

    def reroute(self, link: Link) -> None:
        """What waits at this server may have to wait at another one."""
        for hold in link.waiting():
            if self.route(hold) is not link:
                self.submit(hold)

    def on_unreachable(self, link: Link) -> None:
        """Another node may know who has its slots now."""
        self.slots = {slot: other for slot, other in self.slots.items() if other is not link}
        if self.nodes[0] == link.node:
            self.nodes.append(self.nodes.pop(0))

    def on_connected(self, link: Link) -> None:
        """Leases are renewed at once: how long the server was away is not known."""
        with self.lock:
            self.has_connected = True
            for hold in list(self.table.values()):
                if hold.stage is Stage.HELD and hold.link is link and hold.due_at < inf:
                    self._schedule(hold, clock())

    # What the server says.

    def on_no_reply(self, hold: Hold, error: BaseException) -> None:
        if hold.stage is Stage.ASKING:
            return self._tell_waiting(hold, "")
        if isinstance(error, ResponseError) and hold.stage is not Stage.GIVEN_BACK:
            # The server has refused the connection.
            return self.on_reply(hold, error, 0.0, hold.link)
        if hold.stage is Stage.WAITING:
            hold.has_copies = True
            if not self.has_connected:
                return self.fail(hold, error)
        elif hold.stage is Stage.RELEASING:
            hold.may_be_released = True
        self._retry(hold, error)

    def on_reply(self, hold: Hold, reply: Any, sent_at: float, link: Link, inbox: bytes = b"") -> None:
        stage = hold.stage
        if stage is Stage.PROBING:
            hold.trouble = reply if word_of(reply) == "GRACE" else None
            return self._finish(hold)
        if stage is Stage.ASKING:
            return self._tell_waiting(hold, reply.decode(errors="replace") if isinstance(reply, bytes) else "")
        reply = self._follow(hold, reply, link)
        word = word_of(reply)
        is_elsewhere = word in ROUTED and self.dialer.is_cluster
        if word == "NOINBOX" and stage is Stage.WAITING:
            link.want_inbox(inbox)
            if link.is_open:
                link.submit(hold)
        elif is_elsewhere or (word and self._is_temporary(hold, word)):
            self._retry(hold, reply)
        elif stage is Stage.WAITING:
            self._on_acquire_reply(hold, reply, sent_at)
        elif stage is Stage.HELD:
            self._on_extend_reply(hold, reply, sent_at)
        elif stage is Stage.RELEASING:
            self._on_release_reply(hold, reply)
        elif hold.has_copies:
            # Copies from a lost connection arrive within this time.
            hold.has_copies = False
            self._schedule(hold, clock() + 0.5)
        else:
            self._over(hold)

    def _follow(self, hold: Hold, reply: Any, link: Link) -> Any:
        """Goes where an error points to. The error may have to say more."""
        word = word_of(reply)
        if word in ROUTED and self.dialer.is_cluster:
            _, slot, address = str(reply).split(" ")
            host, _, port = address.rpartition(":")
            self.follow(hold, int(slot), host, int(port), word == "MOVED")
        elif word in ROUTED:
            return node_of_cluster(str(reply))
        elif word == "READONLY":
            # Sentinels may know of another server.
            link.is_stale = True
            self.on_unreachable(link)
        elif word == "ERR" and "unknown command" in str(reply) and "DLOCK" in str(reply).upper():
            return without_module(str(reply), link.address)
        return reply

    @staticmethod
    def _is_temporary(hold: Hold, word: str) -> bool:
        if hold.stage is Stage.WAITING and not hold.terms.waits:
            return False
        return is_temporary(word, may_be_full=hold.stage in (Stage.WAITING, Stage.HELD))

    def on_answer(self, answer: List[Any], since: float, waited_ms: int) -> None:
        """What an inbox has for a request. `since` is when the call was sent, of which `waited_ms` is the wait."""
        word, request, key, owner, *rest = answer
        number = int(request.rpartition(b":")[2])
        hold = self.table.get(number)
        if hold is None or hold.stage is Stage.GIVEN_BACK:
            if word == b"granted":
                self._give_back(hold or self._unknown(number, key, owner.decode()))
        elif hold.stage is Stage.WAITING:
            if word == b"granted":
                self._on_acquire_reply(hold, [*rest[:3], waited_ms], since)
            elif word == b"error":
                self.on_reply(hold, ResponseError(rest[0].decode()), since, hold.link)
            elif word in (b"timeout", b"withdrawn"):
                self.submit(hold)

    def _on_acquire_reply(self, hold: Hold, reply: Any, since: float) -> None:
        if isinstance(reply, ResponseError):
            self.fail(hold, reply)
        elif reply is None:
            hold.is_taken = True
            self.fail(hold, None)
        elif not isinstance(reply, list):
            raise TypeError
        elif len(reply) >= 4:
            self._on_grant(hold, since, *reply[:4])
        else:
            hold.failures, hold.trouble = 0, None
            if not hold.is_taken:
                hold.is_taken = True
                hold.tell_queued(reply[0])
                self._wake_by(clock() + _TOLD_AFTER)

    def _on_grant(self, hold: Hold, since: float, fence: int, _: int, lease_ms: int, waited_ms: int) -> None:
        granted_at = since + waited_ms / 1000
        ends_at = granted_at + hold.terms.max_hold
        if min(deadline_after(since, waited_ms + lease_ms), ends_at) > clock():
            hold.stage, hold.fence, hold.granted_at = Stage.HELD, fence, granted_at
            hold.deadline, hold.ends_at = 0.0, ends_at
            self._finish_lease(hold, since, waited_ms, lease_ms)
        else:
            self._on_late_grant(hold, "MAXHOLD" if ends_at <= clock() else "")

    def _on_late_grant(self, hold: Hold, reason: str) -> None:
        """Asks again, with another request id."""
        self._give_back(self._unknown(hold.number, hold.raw_key, hold.owner))
        hold.late_grants += 1
        if not reason and hold.late_grants == _MAX_LATE_GRANTS:
            reason = "TOOSHORT"
        if reason:
            hold.stage = Stage.OVER
            return self._finish(hold, lost(hold.name, reason))
        hold.number = next(self.numbers)
        self.table[hold.number] = hold
        self.submit(hold)

    def _on_extend_reply(self, hold: Hold, reply: Any, sent_at: float) -> None:
        word = word_of(reply)
        if word in BROKEN:
            self.lose(hold, word)
        elif word:
            self._finish(hold, reply)
            self._retry(hold, reply)
        else:
            self._finish_lease(hold, sent_at, 0, reply)

    def _on_release_reply(self, hold: Hold, reply: Any) -> None:
        word = word_of(reply)
        if word in BROKEN:
            hold.reason = "UNCONFIRMED" if hold.may_be_released else word
            reply = hold.lost_error()
        self._finish(hold, reply if word else None)
        # A copy of the RELEASE may have failed, and one of the ACQUIRE may be late.
        self._give_back(hold) if hold.may_be_released or hold.has_copies else self._over(hold)

    # Ends.

    def _finish_lease(self, hold: Hold, sent_at: float, waited_ms: int, lease_ms: int) -> None:
        """A lease has begun. A third of it later it is renewed, unless it lasts until it is lost anyway."""
        hold.begin_lease(sent_at, waited_ms + lease_ms)
        hold.failures, hold.trouble = 0, None
        due_in = (waited_ms + min(lease_ms, hold.lease_ms) / 3) / 1000
        renews = hold.terms.renew and hold.deadline < hold.ends_at
        self._schedule(hold, sent_at + due_in if renews else inf)
        self._finish(hold)

    def _finish(self, hold: Hold, error: Optional[BaseException] = None) -> None:
        """Ends the operation of the caller."""
        if hold.is_pending:
            hold.is_pending, hold.error = False, error
            while hold.waiters:
                hold.waiters.pop()()

    def lose(self, hold: Hold, reason: str) -> None:
        if hold.stage is Stage.HELD:
            hold.reason, hold.trouble = reason, hold.last_error()
            self._give_back(hold)
            self._finish(hold, hold.lost_error())
            self._tell_lost(hold)

    @staticmethod
    def _tell_lost(hold: Hold) -> None:
        hold.has_lost = True
        hold.tell_lost()

    def fail(self, hold: Hold, error: Optional[BaseException]) -> None:
        """Ends an acquisition without the lock. A late copy of its request may still be queued."""
        self._finish(hold, error)
        self._give_back(hold) if hold.sends > 1 and self.has_connected else self._over(hold)

    def _unknown(self, number: int, key: bytes, owner: str) -> Hold:
        """What nobody waits for."""
        unknown = Hold(key, terms({}))
        unknown.number, unknown.process, unknown.owner = number, self.id, owner
        return unknown

    def _withdraw(self, hold: Hold) -> None:
        # Nothing was sent before there was a connection.
        self._give_back(hold) if self.has_connected else self._over(hold)

    def _give_back(self, hold: Hold) -> None:
        hold.stage, hold.failures = Stage.GIVEN_BACK, 0
        # A server that hangs may grant it long after it was sent.
        hold.deadline = clock() + max(30.0, hold.lease_ms / 1000)
        self.table[hold.number] = hold
        self.submit(hold)

    def _over(self, hold: Hold) -> None:
        hold.stage = Stage.OVER
        self.table.pop(hold.number, None)

    # Time.

    def _retry(self, hold: Hold, error: BaseException) -> None:
        hold.failures += 1
        if hold.stage is not Stage.GIVEN_BACK:
            # Its traceback would keep frames alive.
            is_followed = self.dialer.is_cluster and word_of(error) in ROUTED
            hold.trouble = None if is_followed else error.with_traceback(None)
        pause = min(1.0, 0.01 * 2 ** min(hold.failures, 7)) if hold.failures > 1 else 0.0
        if hold.stage is Stage.HELD:
            pause = min(pause, max(0.02, (hold.deadline - clock()) / 20))
        self._schedule(hold, clock() + pause)

    def _schedule(self, hold: Hold, due_at: float) -> None:
        hold.due_at = due_at
        self._wake_by(min(due_at, hold.deadline))

    def _wake_by(self, time: float) -> None:
        if time < self.wakes_at:
            self.timer = self.timer or self.spawn(self._watch_time, "dlock timer")
            self.wake.notify()

    def _watch_time(self) -> None:
        """Sends nothing itself, so that a server that hangs delays no deadline."""
        while True:
            with self.lock:
                if self.is_stopped:
                    return
                self._look_at_time(clock())
                # It is stopped by the garbage collection of its client, which may run in this thread, here.
                self.wake.wait(min(self.wakes_at - clock(), 60.0))

    def _look_at_time(self, now: float) -> None:
        for hold in list(self.table.values()):
            if min(hold.due_at, hold.deadline) <= now:
                self._on_time(hold, now)
            elif self.tells_at <= now and hold.is_taken and hold.stage is Stage.WAITING:
                self._ask_for_holder(hold, now)
        # The clock goes on while the machine is suspended, but this wait does not: hence the second.
        times = [min(hold.due_at, hold.deadline, now + 1) for hold in self.table.values()]
        self.wakes_at = min(times, default=inf)

    def _ask_for_holder(self, hold: Hold, now: float) -> None:
        """Once for an acquisition, and seldom, so that crowds cost the server nothing."""
        if now - hold.began_at >= _TOLD_AFTER and not hold.has_told_waiting:
            hold.has_told_waiting, self.tells_at = True, now + _TOLD_EVERY
            asked = self._unknown(next(self.numbers), hold.raw_key, "")
            asked.stage, asked.asker = Stage.ASKING, hold
            self.submit(asked)

    @staticmethod
    def _tell_waiting(asked: Hold, holder: str) -> None:
        hold, asked.asker, asked.stage = asked.asker, None, Stage.OVER
        if hold is not None and hold.stage is Stage.WAITING:
            hold.tell_waiting(holder)

    def _on_time(self, hold: Hold, now: float) -> None:
        if now < hold.deadline:
            hold.due_at = inf
            self.submit(hold)
        elif hold.stage is Stage.HELD:
            self.lose(hold, hold.expiry())
        elif hold.stage is Stage.RELEASING:
            hold.reason = "UNCONFIRMED"
            self._finish(hold, hold.lost_error())
            self._give_back(hold)
        else:
            self._over(hold)
