"""A redis-py client in its own process, which takes one JSON request per line: interop/README.md."""

import asyncio
import json
import sys
import time

import redis
from redis.asyncio import Redis
from redis.exceptions import LockError

client = Redis.from_url(sys.argv[1])
held = {}


def say(answer):
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def lock(name, ttl_ms, wait_ms=0, **_):
    """Returns a handle of the lock, or None if it was not granted."""
    taken = client.lock(name, timeout=ttl_ms / 1000)
    if not await taken.acquire(blocking=wait_ms > 0, blocking_timeout=wait_ms / 1000 or None):
        return None
    number = len(held) + 1
    held[number] = taken
    return number


async def extend(handle, ttl_ms, **_):
    try:
        return await held[handle].extend(ttl_ms / 1000, replace_ttl=True)
    except LockError:
        return False


async def release(handle, **_):
    try:
        await held[handle].release()
        return True
    except LockError:
        return False


async def bench(name, tasks, seconds, ttl_ms, **_):
    """Measures lock and unlock. Each task has its own name."""
    begin = time.perf_counter()
    end = begin + seconds
    times = []

    async def task(number):
        count = 0
        while (asked := time.perf_counter()) < end:
            taken = client.lock(f"{name}{number}", timeout=ttl_ms / 1000)
            assert await taken.acquire()
            await taken.release()
            times.append((time.perf_counter() - asked) * 1e6)
            count += 1
        return count

    counts = await asyncio.gather(*(task(number) for number in range(tasks)))
    took = time.perf_counter() - begin
    times.sort()

    def at(share):
        return times[min(int(share * len(times)), len(times) - 1)]

    return {"seconds": took, "counts": counts, "p50_us": at(0.5), "p99_us": at(0.99), "worst_us": at(1)}


OPS = {"lock": lock, "extend": extend, "release": release, "bench": bench}


async def serve(request):
    try:
        value = await OPS[request["op"]](**request)
        say({"id": request["id"], "ok": True, "value": value})
    except Exception as error:  # pylint: disable=broad-except
        say({"id": request["id"], "ok": False, "error": repr(error)})


async def main():
    await client.ping()
    say({"ready": True, "version": f"redis-py {redis.__version__}"})
    lines = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    running = set()
    while line := await lines.readline():
        task = asyncio.create_task(serve(json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)


asyncio.run(main())
