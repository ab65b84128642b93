"""Fenced writes to PostgreSQL: a holder whose lease has expired cannot write after its successor.

It needs a server with DLOCK, and a database `shop` with the tables of fences.sql.

    pip install redis "psycopg[binary]"
    psql -d shop -f fences.sql
    python3 fenced_postgres.py
"""

import time

import psycopg
import redis

GUARD = """
    INSERT INTO fences (lock, fence) VALUES (%s, %s)
    ON CONFLICT (lock) DO UPDATE SET fence = excluded.fence
    WHERE fences.fence <= excluded.fence
    RETURNING fence
"""


class Stale(Exception):
    """A later holder has written. The transaction is rolled back."""


def set_balance(database, fence, balance):
    with database.transaction():
        # No row: a larger fence has written. Otherwise the row stays locked until the end of the transaction.
        if database.execute(GUARD, ("account:7", fence)).fetchone() is None:
            raise Stale
        database.execute("UPDATE accounts SET balance = %s WHERE id = 7", (balance,))


def acquire(owner, lease_ms):
    reply = locks.execute_command("DLOCK.ACQUIRE", "account:7", owner, lease_ms, "BLOCK", 4_000)
    return reply[0]


locks = redis.Redis.from_url("redis://127.0.0.1:7379/")
with psycopg.connect("dbname=shop", autocommit=True) as database:
    alice = acquire("alice", 200)
    set_balance(database, alice, 110)
    set_balance(database, alice, 120)
    print("alice wrote twice under one fence")

    time.sleep(0.5)  # Alice is paused. Her lease expires.
    bob = acquire("bob", 30_000)
    set_balance(database, bob, 200)
    print("bob wrote")

    try:
        set_balance(database, alice, 130)
    except Stale:
        print("alice was rejected")
    print("balance", database.execute("SELECT balance FROM accounts WHERE id = 7").fetchone()[0])

# It prints:
#
# alice wrote twice under one fence
# bob wrote
# alice was rejected
# balance 200
