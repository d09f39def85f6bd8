"""The process in which the jobs of a type run. It holds no lease and no connection."""

from __future__ import annotations

import gc
import os
import socket
import sys
from functools import partial
from typing import Any

from penstock.core.batch import Events
from penstock.core.columns import unpack
from penstock.declare.job import PortableJob
from penstock.engine import tracing
from penstock.engine.handlers.life import Life
from penstock.engine.isolation import wire
from penstock.engine.isolation.child import Ready, belong_to, not_ready
from penstock.engine.isolation.marks import Marks
from penstock.engine.jobs.inbox import Inbox
from penstock.engine.jobs.messages import Cancel, Feed, Recall
from penstock.engine.jobs.places import Places


def main(connection_fd: int, marks_fd: int, parent: int) -> None:
    """Serve one engine until it closes the connection or dies."""
    belong_to(parent)
    with socket.socket(fileno=connection_fd) as connection:
        first = wire.receive(connection)
        if first is None:
            return
        hello: PortableJob = first[0]
        sys.path[:] = hello.path
        sys.argv[:] = hello.arguments
        marks = Marks(hello.policy.concurrency, 0, marks_fd)
        try:
            job = hello.load()
            places = Places(job, marks, lambda message: wire.send(connection, message))
            places.start()
            life = Life(job.around, places.in_loop if job.is_async else None)
            tracing.start_if_wanted()
            life.start()
        except BaseException as error:
            wire.send(connection, not_ready(error))
            return
        wire.send(connection, Ready())
        gc.freeze()  # modules are never garbage: keep the collector from scanning them
        take = partial(_take, places)
        if job.one_by_one:
            places.work_here(Inbox(connection, take, partial(_leave, life)))
        else:
            while (message := wire.receive(connection)) is not None:
                take(*message)
        life.stop()
        tracing.flush()


def _leave(life: Life) -> None:
    """End the process while a job runs in its main thread."""
    life.stop()
    tracing.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _take(places: Places, header: Any, body: bytearray | memoryview) -> None:
    match header:
        case Feed():
            events = Events(unpack(header.kind, body), header.stream, header.claim)
            places.feed(header.batch, events, header.token)
        case Recall():
            places.recall(header.batch)
        case Cancel():
            places.cancel(header.batch, header.place)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
