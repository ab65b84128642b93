"""Fenced writes in Redis: a script that begins with DLOCK.GUARD, WATCH, and a fence beside data on another server.

It needs a server with DLOCK.

    pip install redis
    python3 fenced_redis.py
"""

import redis

LOCK, DATA = "{acct:7}:lock", "{acct:7}"

locks = redis.Redis.from_url("redis://127.0.0.1:7379/", decode_responses=True)

# KEYS: lock, data; ARGV: owner, fence, expected number of transfers, amount.
transfer = locks.register_script("""
    redis.call('DLOCK.GUARD', KEYS[1], ARGV[1], ARGV[2])
    if (redis.call('HGET', KEYS[2], 'transfers') or '0') ~= ARGV[3] then
        return redis.error_reply('CONFLICT an earlier transfer was lost or repeated: read again')
    end
    redis.call('HINCRBY', KEYS[2], 'transfers', 1)
    local balance = redis.call('HINCRBY', KEYS[2], 'balance', ARGV[4])
    redis.call('DLOCK.RELEASE', KEYS[1], ARGV[1], 'FENCE', ARGV[2])
    return balance
""")

# For data on another server, which knows no locks. KEYS: data; ARGV: fence, balance.
set_balance = locks.register_script("""
    local last = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
    if last > tonumber(ARGV[1]) then
        return redis.error_reply('STALE a later holder has written')
    end
    return redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'balance', ARGV[2])
""")


def acquire(owner, lease_ms):
    reply = locks.execute_command("DLOCK.ACQUIRE", LOCK, owner, lease_ms, "BLOCK", 4_000)
    return owner, reply[0]


def attempt(what, write):
    try:
        print(f"{what}: {write()}")
    except redis.WatchError:
        print(f"{what}: rejected, the holders have changed")
    except redis.ResponseError as error:
        print(f"{what}: rejected, {str(error).split()[0]}")


def with_watch(grant, balance, meanwhile):
    with locks.pipeline() as pipeline:
        pipeline.watch(LOCK)
        pipeline.execute_command("DLOCK.GUARD", LOCK, *grant)
        meanwhile()
        pipeline.multi()
        pipeline.hset(DATA, "balance", balance)
        pipeline.hincrby(DATA, "transfers", 1)
        return pipeline.execute()


def extend(owner, fence):
    return locks.execute_command("DLOCK.EXTEND", LOCK, owner, 60_000, "FENCE", fence)


def release(owner, fence):
    return locks.execute_command("DLOCK.RELEASE", LOCK, owner, "FENCE", fence)


alice = acquire("alice", 60_000)
attempt("transfer", lambda: transfer([LOCK, DATA], [*alice, 0, 100]))
attempt("transfer, the lock was released", lambda: transfer([LOCK, DATA], [*alice, 1, 50]))

bob = acquire("bob", 60_000)
attempt("transfer, an earlier one was lost", lambda: transfer([LOCK, DATA], [*bob, 7, 50]))
attempt("WATCH, renewed meanwhile", lambda: with_watch(bob, 120, lambda: extend(*bob)))
attempt("WATCH, lost meanwhile", lambda: with_watch(bob, 130, lambda: release(*bob)))

attempt("other server, bob", lambda: set_balance(["account"], [bob[1], 120]))
attempt("other server, alice", lambda: set_balance(["account"], [alice[1], 100]))

# It prints:
#
# transfer: 100
# transfer, the lock was released: rejected, NOTHELD
# transfer, an earlier one was lost: rejected, CONFLICT
# WATCH, renewed meanwhile: [0, 2]
# WATCH, lost meanwhile: rejected, the holders have changed
# other server, bob: 2
# other server, alice: rejected, STALE
