"""PGQueuer, as its documentation has it: asyncpg, uvloop, batches of 1,000. Runs in the peers' own environment.

`install URL` · `load URL COUNT` · `drain URL MOST [nothing]` · `wait URL SECONDS BATCH PLACES` ·
`produce URL COUNT PAUSE` · `feed URL` (a job for each line of its input, and a line when it is stored) ·
`work URL FILE` (until it is killed; notes how many seconds each job took from the call that stored it to the start of
its handler). `drain` and `wait` print when their first job began, when their last one ended, and how many they did.
"""

import asyncio
import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import asyncpg
import uvloop
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.types import QueueExecutionMode

BATCH = 1_000
ENTRYPOINT = "order"


async def install(url: str) -> None:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def load(url: str, count: int) -> None:
    """Jobs with the payload of the benchmark's events."""
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    for first in range(0, count, BATCH):
        numbers = range(first, min(first + BATCH, count))
        payloads = [json.dumps({"id": n, "text": "x" * 170}).encode() for n in numbers]
        await queries.enqueue([ENTRYPOINT] * len(payloads), payloads, [0] * len(payloads))
    await connection.close()


async def produce(url: str, count: int, pause: float) -> None:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    for _ in range(count):
        await queries.enqueue(ENTRYPOINT, json.dumps({"at": time.time()}).encode())
        await asyncio.sleep(pause)
    await connection.close()


async def feed(url: str) -> None:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        await queries.enqueue(ENTRYPOINT, json.dumps({"at": time.time()}).encode())
        print("stored", flush=True)


async def work(url: str, file: str) -> None:
    connection = await asyncpg.connect(url)
    queuer = PgQueuer(AsyncpgDriver(connection))
    notes = Path(file).open("w", buffering=1)  # noqa: SIM115 - as long as the process lives

    @queuer.entrypoint(ENTRYPOINT)
    async def handle(job: Job) -> None:
        assert job.payload is not None
        order = json.loads(job.payload)
        notes.write(f"{time.time() - order['at']}\n")

    await queuer.run(dequeue_timeout=timedelta(seconds=30), batch_size=BATCH)


async def drain(url: str, most: int, parses: bool) -> None:
    """Handle so many of what there is."""
    connection = await asyncpg.connect(url)
    queuer = PgQueuer(AsyncpgDriver(connection))
    done, first, last = 0, 0.0, 0.0

    @queuer.entrypoint(ENTRYPOINT)
    async def handle(job: Job) -> None:
        nonlocal done, first, last
        first = first or time.time()
        if parses:
            json.loads(job.payload or b"")
        done += 1
        if done == most:
            last = time.time()
            queuer.shutdown.set()

    await queuer.run(dequeue_timeout=timedelta(seconds=30), batch_size=BATCH, mode=QueueExecutionMode.drain)
    assert done >= most, (done, most)
    print(first, last, most)


async def wait(url: str, seconds: float, batch: int, places: int | None) -> None:
    """Handle all there is, each by waiting."""
    connection = await asyncpg.connect(url)
    queuer = PgQueuer(AsyncpgDriver(connection))
    done, first, last = 0, 0.0, 0.0

    @queuer.entrypoint(ENTRYPOINT)
    async def handle(job: Job) -> None:
        nonlocal done, first, last
        first = first or time.time()
        await asyncio.sleep(seconds)
        done, last = done + 1, time.time()

    await queuer.run(
        dequeue_timeout=timedelta(seconds=30),
        batch_size=batch,
        max_concurrent_tasks=places,
        mode=QueueExecutionMode.drain,
    )
    print(first, last, done)


def main(verb: str, url: str, *rest: str) -> None:
    todo = {
        "install": lambda: install(url),
        "load": lambda: load(url, int(rest[0])),
        "produce": lambda: produce(url, int(rest[0]), float(rest[1])),
        "feed": lambda: feed(url),
        "drain": lambda: drain(url, int(rest[0]), rest[1:] != ("nothing",)),
        "wait": lambda: wait(url, float(rest[0]), int(rest[1]), int(rest[2]) or None),
        "work": lambda: work(url, rest[0]),
    }
    uvloop.run(todo[verb]())


if __name__ == "__main__":
    main(*sys.argv[1:])
