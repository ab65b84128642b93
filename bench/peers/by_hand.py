"""by_hand.py PORT LOCKS ROUNDS: prints in how many ms redis-py alone sends that many DLOCK.ACQUIREs in the last round, in a
pipeline of asyncio."""

import asyncio
import sys
import time
import uuid

import redis.asyncio


async def main(port, locks, rounds):
    client = redis.asyncio.Redis(port=port)
    names = [f"by-hand:{number}" for number in range(locks)]
    for _ in range(rounds):
        began = time.monotonic()
        pipeline = client.pipeline(transaction=False)
        for name in names:
            owner = f"by-hand:{uuid.uuid4()}"
            pipeline.execute_command("DLOCK.ACQUIRE", name, owner, 30_000, "REQID", owner)
        await pipeline.execute()
        took_s = time.monotonic() - began
        await client.delete(*names)
    print(took_s * 1000)
    await client.aclose()


asyncio.run(main(*map(int, sys.argv[1:])))
