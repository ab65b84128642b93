"""Fenced writes to an object store with conditional PUTs: a former holder cannot overwrite its successor's object.

It needs a server with DLOCK, and a store on port 9000 that takes unsigned requests. The test runs it against a small
server that implements the two conditions, not against S3.

    pip install redis
    python3 fenced_object.py
"""

import time
import urllib.error
import urllib.request

import redis

OBJECT = "http://127.0.0.1:9000/bucket/report"


class Stale(Exception):
    """A later holder has written."""


def read():
    """The ETag and the fence of the object, (None, 0) if there is none."""
    try:
        with urllib.request.urlopen(urllib.request.Request(OBJECT, method="HEAD")) as reply:
            return reply.headers["ETag"], int(reply.headers["x-amz-meta-fence"])
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return None, 0


def write(fence, body):
    while True:
        tag, last_fence = read()
        if last_fence > fence:
            raise Stale
        # Replace exactly the version that was read: no object, or this one.
        condition = {"If-None-Match": "*"} if tag is None else {"If-Match": tag}
        headers = {"x-amz-meta-fence": str(fence), **condition}
        request = urllib.request.Request(OBJECT, data=body, headers=headers, method="PUT")
        try:
            urllib.request.urlopen(request).close()
            return
        except urllib.error.HTTPError as error:
            # 409 and 412: another writer was faster. Check the fence again.
            if error.code not in (409, 412):
                raise


def acquire(owner, lease_ms):
    reply = locks.execute_command("DLOCK.ACQUIRE", "report", owner, lease_ms, "BLOCK", 4_000)
    return reply[0]


locks = redis.Redis.from_url("redis://127.0.0.1:7379/")
alice = acquire("alice", 200)
write(alice, b"draft")
write(alice, b"by alice")
print("alice wrote twice under one fence")

time.sleep(0.5)  # Alice is paused. Her lease expires.
bob = acquire("bob", 30_000)
write(bob, b"by bob")
print("bob wrote")

try:
    write(alice, b"by alice, too late")
except Stale:
    print("alice was rejected")
print(urllib.request.urlopen(OBJECT).read().decode())

# It prints:
#
# alice wrote twice under one fence
# bob wrote
# alice was rejected
# by bob
