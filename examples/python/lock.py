"""A lock of DLOCK for redis-py 8: copy this file and adapt it.

    pip install redis
    python3 lock.py
"""

import time
import uuid

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel


def connect_server(timeout):
    """A client of one server with this read timeout in seconds. It retries a request once."""
    return redis.Redis(host="127.0.0.1", port=7379, socket_timeout=timeout, retry=Retry(NoBackoff(), 1))


def connect_sentinels(timeout):
    """A client of the primary that the Sentinels call `locks`."""
    sentinels = Sentinel([("127.0.0.1", 26379)], socket_timeout=1)
    return sentinels.master_for("locks", socket_timeout=timeout, retry=Retry(NoBackoff(), 1))


def connect_cluster(timeout):
    """A client of a cluster, which asks this node for the others."""
    return RedisCluster(host="127.0.0.1", port=7379, socket_timeout=timeout, retry=Retry(NoBackoff(), 1))


# Choose one of the three, and delete the others.
connect = connect_server


# Goes on while the machine is suspended. On macOS the monotonic clock does.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Lost(Exception):
    """This owner does not hold the lock, or cannot be sure that it does."""


class Lock:
    """A held lock."""

    def __init__(self, client, key, owner, request, fence, deadline):
        self.client, self.key, self.owner = client, key, owner
        self.request, self.fence, self.deadline = request, fence, deadline

    def remaining(self):
        """For how many more seconds the lock is certainly held."""
        return max(0.0, self.deadline - now())

    def extend(self, lease_ms):
        """Extends the lease. Call it each time a third of the lease has passed."""
        sent = now()
        lease = self._call("DLOCK.EXTEND", self.key, self.owner, lease_ms, "FENCE", self.fence)
        self.deadline = max(self.deadline, deadline(sent, lease))

    def release(self):
        """Releases the lock. Raises Lost if it was lost before, or a retry finds it released."""
        self._call("DLOCK.RELEASE", self.key, self.owner, "FENCE", self.fence, "REQID", self.request)

    def _call(self, *command):
        try:
            return self.client.execute_command(*command)
        except redis.ResponseError as error:
            word = str(error).split(" ")[0]
            if word in ("NOTHELD", "NOTOWNER", "STALE"):
                raise Lost(word) from error
            raise


def acquire(client, waiting, key, lease_ms, wait_ms):
    """Waits for the lock. Returns None after `wait_ms`. The read timeout of `waiting` must be longer."""
    owner, request = uuid.uuid4().hex, uuid.uuid4().hex
    sent = now()
    try:
        reply = waiting.execute_command(
            "DLOCK.ACQUIRE", key, owner, lease_ms, "BLOCK", wait_ms, "REQID", request
        )
    except (redis.ConnectionError, redis.TimeoutError):
        # The lock may or may not have been granted: undo it.
        client.execute_command("DLOCK.RELEASE", key, owner, "REQID", request)
        raise
    if reply is None:
        return None
    fence, _holds, lease, waited = reply[:4]
    return Lock(client, key, owner, request, fence, deadline(sent, waited + lease))


def deadline(sent, lease_ms):
    return sent + lease_ms / 1000 * 0.999 - 0.002


def now():
    return time.clock_gettime(CLOCK)


if __name__ == "__main__":
    # For renewals. The read timeout is short compared with the lease: two renewals may fail before the third is too
    # late.
    client = connect(3)
    # The read timeout is longer than any wait. Each waiting thread takes a connection from the pool.
    waiting = connect(15)
    lock = acquire(client, waiting, "orders:42", lease_ms=30_000, wait_ms=10_000)
    if lock is None:
        raise SystemExit("held by another owner")
    print(f"granted {lock.key} with fence {lock.fence}")
    print(f"valid for {int(lock.remaining())} s")
    lock.extend(30_000)
    print("extended")
    lock.release()
    print("released")
    try:
        lock.release()
    except Lost as error:
        print(f"lost: {error}")
