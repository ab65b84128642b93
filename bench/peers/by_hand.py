"""by_hand.py PORT LOCKS: prints in how many ms redis-py alone sends that many DLOCK.ACQUIREs, in a pipeline of asyncio."""

import asyncio
import sys
import time
import uuid

import redis.asyncio


async def main(port, locks):
    client = redis.asyncio.Redis(port=port)
    # It connects.
    await client.ping()
    began = time.monotonic()
    pipeline = client.pipeline(transaction=False)
    for number in range(locks):
        owner = f"by-hand:{uuid.uuid4()}"
        pipeline.execute_command("DLOCK.ACQUIRE", f"by-hand:{number}", owner, 30_000, "REQID", owner)
    await pipeline.execute()
    print((time.monotonic() - began) * 1000)
    await client.delete(*(f"by-hand:{number}" for number in range(locks)))
    await client.aclose()


asyncio.run(main(*map(int, sys.argv[1:])))
