"""pgmq through asyncpg: read and delete, a thousand at a time. Runs in the peers' own environment.

`install URL` · `load URL COUNT` · `drain URL MOST` (prints when it began, when it ended, and how many it did).
"""

import json
import sys
import time

import asyncpg
import uvloop
from pgmq.install import get_embedded_install_sql

BATCH = 1_000
QUEUE = "orders"
VISIBLE_AGAIN = 60  # seconds


async def install(connection: asyncpg.Connection) -> None:
    await connection.execute(get_embedded_install_sql())
    await connection.execute("select pgmq.create($1)", QUEUE)


async def load(connection: asyncpg.Connection, count: int) -> None:
    """Messages with the payload of the benchmark's jobs."""
    for first in range(0, count, BATCH):
        numbers = range(first, min(first + BATCH, count))
        messages = [json.dumps({"id": n, "text": "x" * 170}) for n in numbers]
        await connection.execute("select pgmq.send_batch($1, $2::jsonb[])", QUEUE, messages)


async def drain(connection: asyncpg.Connection, most: int) -> None:
    read = await connection.prepare("select * from pgmq.read($1, $2, $3)")
    delete = await connection.prepare("select pgmq.delete($1, $2::bigint[])")
    begin, done = time.time(), 0
    while done < most and (rows := await read.fetch(QUEUE, VISIBLE_AGAIN, BATCH)):
        await delete.fetch(QUEUE, [row["msg_id"] for row in rows])
        done += len(rows)
    print(begin, time.time(), done)


async def main(verb: str, url: str, *rest: str) -> None:
    connection = await asyncpg.connect(url)
    todo = {"install": install, "load": load, "drain": drain}
    await todo[verb](connection, *map(int, rest))
    await connection.close()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
