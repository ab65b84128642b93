"""peer.py LOCK WORKERS SECTION_MS SECONDS PORT: see run.

Defaults: those of redis-py and its Lock, which polls every 100 ms and never gives up. Its lease is endless by default:
30 s here.
"""

import sys
import threading
import time

import dlock
import redis


def with_dlock(port):
    locks = dlock.Locks(redis.Redis("127.0.0.1", port))
    return lambda: locks.acquire("peer")


def with_redis_py(port):
    client = redis.Redis("127.0.0.1", port)

    def acquire():
        lock = client.lock("peer-redis-py", timeout=30)
        return lock if lock.acquire() else None

    return acquire


def work(acquire, section_s, start, end, lines):
    began = start
    while began < end:
        held = acquire()
        now = time.monotonic()
        if held is None:
            lines.append(f"gave_up {(now - start) * 1000}")
            continue
        lines.append(f"{(began - start) * 1000} {(now - start) * 1000}")
        if section_s:
            time.sleep(section_s)
        held.release()
        began = time.monotonic()


def main(name, workers, section_ms, seconds, port):
    acquire = {"dlock": with_dlock, "redis-py": with_redis_py}[name](int(port))
    lines, start = [], time.monotonic()
    arguments = (acquire, int(section_ms) / 1000, start, start + int(seconds), lines)
    threads = [threading.Thread(target=work, args=arguments) for _ in range(int(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("\n".join(lines))


main(*sys.argv[1:])
