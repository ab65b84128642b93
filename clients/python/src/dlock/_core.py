"""All acquisitions of a client in this process, and the thread that watches their time."""

from __future__ import annotations

import atexit
import itertools
import os
import secrets
import socket
import sys
import threading
import time
import weakref
from math import inf
from typing import Any, Callable, Dict, List, Optional

from redis.crc import key_slot
from redis.exceptions import LockError, ResponseError

from ._connect import Address, Dialer, word_of
from ._hold import Hold, Stage, clock, named
from ._link import Link

_LOST = {
    "NOTHELD": "the server says that nobody holds it",
    "NOTOWNER": "the server says that others hold it",
    "STALE": "the server says that its owner has acquired it again since",
}
#: In reply to EXTEND and RELEASE. A command in GUARD may find the wrong type elsewhere.
_BROKEN = {**_LOST, "WRONGTYPE": "its key holds another type now"}
_EXPIRED = "its lease was not renewed in time"
_UNCONFIRMED = "no reply says that it was held until its release"
_CLOSED = "its Locks were closed"


class Core:
    """Knows each acquisition until its last reply. Without a reply, the same request is sent again."""

    TRANSIENT = frozenset(
        "MOVED ASK TRYAGAIN CLUSTERDOWN READONLY MASTERDOWN LOADING UNBLOCKED NOREPLICAS MISCONF OOM BUSY".split()
    )

    def __init__(self, client: Any) -> None:
        self.dialer = Dialer(client)
        self.table: Dict[int, Hold] = {}
        self.start()

    def start(self) -> None:
        """Also in the child after a fork: with other names, other connections, and nothing held."""
        for hold in self.table.values():
            hold.stage, hold.why_lost = Stage.OVER, "the parent of this process holds it"
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(16)}"
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

    @staticmethod
    def spawn(run: Callable[[], None]) -> threading.Thread:
        """A thread that an unexpected error does not end, because leases depend on it."""

        def run_on() -> None:
            while True:
                try:
                    return run()
                except Exception:
                    threading.excepthook(threading.ExceptHookArgs([*sys.exc_info(), thread]))
                    time.sleep(0.1)

        thread = threading.Thread(target=run_on, name="dlock", daemon=True)
        thread.start()
        return thread

    # Operations of callers.

    def begin(self, hold: Hold, stage: Stage) -> Link:
        """Begins an operation: WAITING to acquire, HELD to extend, RELEASING to release. It is not sent yet."""
        with self.lock:
            if self.is_stopped:
                hold.why_lost = _CLOSED
                raise hold.lost_error()
            if stage is not Stage.WAITING and not hold.is_held:
                self.lose(hold, _EXPIRED)
                raise hold.lost_error()
            # Before it is sent, because the answer may overtake the reply.
            self.table[hold.number], hold.link = hold, self.route(hold)
            hold.stage, hold.is_pending, hold.error = stage, True, None
            return hold.link

    def enlist(self, hold: Hold) -> None:
        """Gives it a name of this process, once: a second acquisition could not be told from a retry of the first."""
        with self.lock:
            if hold.number:
                raise named(
                    LockError(f"the lock {hold.name} is acquired once only: make one for each acquisition"), hold.name
                )
            hold.number = next(self.numbers)
            hold.owner = f"{hold.token}{self.name}:{hold.number}"

    def abandon(self, hold: Hold) -> None:
        """The caller is gone. Its request is given back, or its release goes on, in the background."""
        with self.lock:
            hold.waiters.clear()
            if hold.stage in (Stage.WAITING, Stage.HELD):
                self._give_back(hold)
            elif hold.stage is Stage.RELEASING:
                self.submit(hold)

    def submit(self, hold: Hold) -> None:
        with self.lock:
            self.route(hold).submit(hold)

    def on_query_error(self, hold: Hold, error: ResponseError) -> None:
        if word_of(error) in _LOST:
            with self.lock:
                self.lose(hold, _LOST[word_of(error)])
            raise hold.lost_error() from error

    def settle(self, within: float) -> None:
        """Waits until all that was released or given back is."""
        end, ending = clock() + within, (Stage.RELEASING, Stage.GIVEN_BACK)
        while clock() < end and any(hold.stage in ending for hold in list(self.table.values())):
            time.sleep(0.002)

    def withdraw(self) -> None:
        """Ends the acquisitions that wait. A lock that is granted meanwhile is released."""
        with self.lock:
            for hold in list(self.table.values()):
                if hold.stage is Stage.WAITING:
                    hold.why_lost = _CLOSED
                    self._finish(hold, hold.lost_error())
                    self._give_back(hold) if self.has_connected else self._over(hold)

    def stop(self) -> None:
        """Has the threads end, and the connections with them."""
        with self.lock:
            self.is_stopped = True
            for hold in list(self.table.values()):
                was_held, hold.stage, hold.why_lost = hold.stage is Stage.HELD, Stage.OVER, _CLOSED
                self._finish(hold, hold.lost_error())
                if was_held:
                    hold.tell_lost()
            self.wake.notify()
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
        if hold.stage is Stage.WAITING:
            hold.has_copies = True
            if not self.has_connected or (not hold.waits and hold.failures >= 2):
                return self.fail(hold, error)
        elif hold.stage is Stage.RELEASING:
            hold.may_be_released = True
        self._retry(hold, error)

    def on_reply(self, hold: Hold, reply: Any, sent_at: float, link: Link, inbox: str = "") -> None:
        word, stage = word_of(reply), hold.stage
        is_elsewhere = word in ("MOVED", "ASK")
        if is_elsewhere and self.dialer.is_cluster:
            _, slot, address = str(reply).split(" ")
            host, _, port = address.rpartition(":")
            other = self._link((host or link.host, int(port)))
            if word == "ASK":
                hold.asks = other
            else:
                self.slots[int(slot)] = other
        elif is_elsewhere:
            word, reply = (
                "ERR",
                ResponseError(f"{reply}: this server is a node of a cluster: use a client for clusters"),
            )
        elif word == "READONLY":
            # Sentinels may know of another server.
            link.is_stale = True
            self.on_unreachable(link)
        if word == "NOINBOX" and stage is Stage.WAITING:
            link.want_inbox(inbox)
            if link.is_open:
                link.submit(hold)
        elif word in self.TRANSIENT and (stage is not Stage.WAITING or hold.waits or is_elsewhere):
            self._retry(hold, reply)
        elif stage is Stage.WAITING:
            self._on_acquire_reply(hold, reply, sent_at)
        elif stage is Stage.HELD:
            self._on_extend_reply(hold, reply, sent_at)
        elif stage is Stage.RELEASING:
            if word in _BROKEN:
                hold.why_lost = _UNCONFIRMED if hold.may_be_released else _BROKEN[word]
                reply = hold.lost_error()
            self._finish(hold, reply if word else None)
            # A copy of the RELEASE may have failed, and one of the ACQUIRE may be late.
            self._give_back(hold) if hold.may_be_released or hold.has_copies else self._over(hold)
        elif hold.has_copies:
            # Copies from a lost connection arrive within this time.
            hold.has_copies = False
            self._schedule(hold, clock() + 0.5)
        else:
            self._over(hold)

    def on_answer(self, answer: List[Any], since: float, waited_ms: int) -> None:
        """What an inbox has for a request. `since` is when the call was sent, of which `waited_ms` is the wait."""
        word, number, key, owner, *rest = answer
        hold = self.table.get(int(number))
        if hold is None or hold.stage is Stage.GIVEN_BACK:
            if word == b"granted":
                self._give_back(hold or self._unknown(int(number), key, owner.decode()))
        elif hold.stage is Stage.WAITING:
            if word == b"granted":
                self._on_acquire_reply(hold, [*rest[:3], waited_ms], since)
            elif word == b"error":
                self.on_reply(hold, ResponseError(rest[0].decode()), since, hold.link)
            elif word in (b"timeout", b"withdrawn"):
                self.submit(hold)

    def _on_acquire_reply(self, hold: Hold, reply: Any, since: float) -> None:
        if reply is None or isinstance(reply, ResponseError):
            self.fail(hold, reply)
        elif not isinstance(reply, list):
            raise TypeError
        elif len(reply) >= 4:
            fence, _, lease_ms, waited_ms = reply[:4]
            deadline = since + (waited_ms + lease_ms) * 0.000999 - 0.002
            if deadline > clock():
                hold.stage, hold.fence, hold.deadline = Stage.HELD, fence, deadline
                self._finish_lease(hold, since + waited_ms / 1000, lease_ms)
            else:
                # Too late: asks again.
                self._give_back(self._unknown(hold.number, hold.key, hold.owner))
                hold.number = next(self.numbers)
                self.table[hold.number] = hold
                self.submit(hold)
        else:
            hold.failures, hold.trouble = 0, None

    def _on_extend_reply(self, hold: Hold, reply: Any, sent_at: float) -> None:
        word = word_of(reply)
        if word in _BROKEN:
            self.lose(hold, _BROKEN[word])
        elif word:
            self._finish(hold, reply)
            self._retry(hold, reply)
        else:
            hold.deadline = max(hold.deadline, sent_at + reply * 0.000999 - 0.002)
            self._finish_lease(hold, sent_at, reply)

    # Ends.

    def _finish_lease(self, hold: Hold, start: float, lease_ms: int) -> None:
        """A lease has begun. A third of it later it is renewed."""
        hold.failures, renews = 0, hold.options.get("renew", True)
        self._schedule(hold, start + min(lease_ms, hold.lease_ms) / 3000 if renews else inf)
        self._finish(hold)

    def _finish(self, hold: Hold, error: Optional[BaseException] = None) -> None:
        """Ends the operation of the caller."""
        if hold.is_pending:
            hold.is_pending, hold.error = False, error
            while hold.waiters:
                hold.waiters.pop()()

    def lose(self, hold: Hold, why: str) -> None:
        if hold.stage is Stage.HELD:
            hold.why_lost = why
            self._give_back(hold)
            self._finish(hold, hold.lost_error())
            hold.tell_lost()

    def fail(self, hold: Hold, error: Optional[BaseException]) -> None:
        """Ends an acquisition without the lock. A late copy of its request may still be queued."""
        self._finish(hold, error)
        self._give_back(hold) if hold.sends > 1 and self.has_connected else self._over(hold)

    def _unknown(self, number: int, key: Any, owner: str) -> Hold:
        """What nobody waits for."""
        unknown = Hold(self, None, key, {})
        unknown.number, unknown.owner = number, owner
        return unknown

    def _give_back(self, hold: Hold) -> None:
        hold.stage, hold.failures = Stage.GIVEN_BACK, 0
        # A server that hangs may grant it long after it was sent.
        hold.deadline = clock() + max(30.0, hold.lease_ms / 1000)
        self.table[hold.number] = hold
        self.submit(hold)

    def _over(self, hold: Hold) -> None:
        # A thread may keep it, but not the client.
        hold.stage, hold.client = Stage.OVER, None
        self.table.pop(hold.number, None)

    # Time.

    def _retry(self, hold: Hold, error: BaseException) -> None:
        hold.failures, hold.trouble = hold.failures + 1, error
        pause = min(1.0, 0.01 * 2 ** min(hold.failures, 7)) if hold.failures > 1 else 0.0
        if hold.stage is Stage.HELD:
            pause = min(pause, max(0.005, (hold.deadline - clock()) / 20))
        self._schedule(hold, clock() + pause)

    def _schedule(self, hold: Hold, due_at: float) -> None:
        hold.due_at = due_at
        if min(due_at, hold.deadline) < self.wakes_at:
            self.timer = self.timer or self.spawn(self._watch_time)
            self.wake.notify()

    def _watch_time(self) -> None:
        """Sends nothing itself, so that a server that hangs delays no deadline."""
        while not self.is_stopped:
            with self.lock:
                now = clock()
                for hold in list(self.table.values()):
                    if min(hold.due_at, hold.deadline) <= now:
                        self._on_time(hold, now)
                # The clock goes on while the machine is suspended, but this wait does not: hence the second.
                times = [min(hold.due_at, hold.deadline, now + 1) for hold in self.table.values()]
                self.wakes_at = min(times, default=inf)
                self.wake.wait(self.wakes_at - now if self.table else None)

    def _on_time(self, hold: Hold, now: float) -> None:
        if now < hold.deadline:
            hold.due_at = inf
            self.submit(hold)
        elif hold.stage is Stage.HELD:
            self.lose(hold, _EXPIRED)
        elif hold.stage is Stage.RELEASING:
            hold.why_lost = _UNCONFIRMED
            self._finish(hold, hold.lost_error())
            self._give_back(hold)
        else:
            self._over(hold)


_cores: weakref.WeakKeyDictionary[Any, Core] = weakref.WeakKeyDictionary()


def core_of(client: Any) -> Core:
    """The core of a client, for all that use this client."""
    core = _cores.get(client)
    if core is None:
        # Of several threads, one is the first.
        core = _cores.setdefault(client, Core(client))
        weakref.finalize(client, core.stop).atexit = False
    return core


def close_core_of(client: Any) -> None:
    core = _cores.pop(client, None)
    if core is not None:
        try:
            core.withdraw()
            core.settle(3.0)
        finally:
            core.stop()


def _for_each_core(do: Callable[[Core], None]) -> None:
    for core in list(_cores.values()):
        do(core)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _for_each_core(Core.start))
# A program that ends waits a moment for what it has released or cancelled.
atexit.register(lambda: _for_each_core(lambda core: core.settle(0.1)))
