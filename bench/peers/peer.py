"""peer.py LOCK PORT WORKERS SECTION_MS SECONDS: see run."""

import json
import sys
import threading
import time

import lock as page

WARM_UP_S = 1


def dlock(client):
    """The program of docs/languages.md."""
    waiting = page.connect(60)
    return lambda: page.acquire(client, waiting, "peer", 30_000, 30_000)


def redis_py(client):
    def acquire():
        lock = client.lock("peer-redis-py", timeout=30)
        return lock if lock.acquire() else None

    return acquire


def work(acquire, section_s, counted, end, waits, failed):
    began = time.monotonic()
    while began < end:
        held = acquire()
        if held is None:
            failed.append(1)
            continue
        if began >= counted:
            waits.append(time.monotonic() - began)
        if section_s:
            time.sleep(section_s)
        held.release()
        began = time.monotonic()


def main(name, _port, workers, section_ms, seconds):
    client = page.connect(30)
    acquire = {"dlock": dlock, "redis-py": redis_py}[name](client)
    waits, failed, counted = [], [], time.monotonic() + WARM_UP_S
    arguments = (acquire, int(section_ms) / 1000, counted, counted + float(seconds), waits, failed)
    threads = [threading.Thread(target=work, args=arguments) for _ in range(int(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.monotonic() - counted
    waits.sort()
    print(json.dumps({
        "per_s": round(len(waits) / elapsed),
        "p99_ms": round(waits[len(waits) * 99 // 100] * 1000, 1),
        "longest_ms": round(waits[-1] * 1000, 1),
        "failed": len(failed),
        "connections": client.info("clients")["connected_clients"],
    }))


main(*sys.argv[1:])
