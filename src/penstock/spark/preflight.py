"""Preflight: before anything is claimed, every executor imports what the run needs and opens the database.

The check is sent as code that needs nothing but Python's standard library, so that an executor without Penstock can
say so. What it needs of Penstock travels as bytes, and is read only where Penstock was found.
"""

from __future__ import annotations

import logging
import pickle
import platform
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Final

from penstock.declare.job import PortableJob
from penstock.declare.portable import PortableSubscription
from penstock.errors import ExecutorUnfit
from penstock.spark import probe
from penstock.spark.causes import failure_of
from penstock.spark.session import has_ended, is_local
from penstock.spark.slots import executor_ids

logger = logging.getLogger("penstock")
_ROUNDS: Final = 5  # of tasks, until every executor has had one
_WAIT_SECONDS: Final = 15.0  # for the first task, before a warning
_DAEMON: Final = re.compile(r"Error from python worker:\s*(?P<said>.*?)\s*PYTHONPATH was:", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a task of this run needs on its executor."""

    url: str  # of the log, without its password
    functions: tuple[PortableSubscription | PortableJob, ...] = ()
    folders: tuple[str, ...] = ()  # that tasks write to


class _ProcessDied(Exception):
    """A task's process or executor died."""


def check_executors(spark: Any, needs: Needs) -> None:
    """Raise `ExecutorUnfit`, with the root cause, unless all executors of this moment can run the app."""
    context = spark.sparkContext
    if is_local(context.master):
        return  # the driver itself has just done all of it
    seen: set[probe.Place] = set()
    with _sent_by_value():
        for tries_left in reversed(range(_ROUNDS)):
            try:
                looks = _look(context, needs)
            except _ProcessDied as error:  # it may have been killed, or its node lost
                if not tries_left:
                    raise ExecutorUnfit(str(error)) from error
                logger.warning("%s Checking the executors again", error)
                continue
            for place, problem in looks:
                if problem is not None:
                    raise ExecutorUnfit(f"The executor in {place[1]} on {place[0]} cannot run this app: {problem}")
                seen.add(place)
            if len(seen) >= len(executor_ids(context)):
                return
    logger.warning("only %d of %d executors were checked: the others were busy", len(seen), len(executor_ids(context)))


def _look(context: Any, needs: Needs) -> list[tuple[probe.Place, str | None]]:
    """Run enough tasks for every executor to get one."""
    wanted = pickle.dumps(needs)
    expected = (platform.python_version().rpartition(".")[0], _version())
    tasks = 2 * max(1, len(executor_ids(context))) + 1
    context.setJobDescription("penstock: checks the executors")
    with _warning_of_silence(context):
        try:
            numbers = context.parallelize(range(tasks), tasks)
            return list(numbers.mapPartitions(lambda _: [probe.look(wanted, expected)]).collect())
        except Exception as error:
            if has_ended(context):
                raise
            said = f"A task that only looks around failed: {_cause(error)}"
            raise (_ProcessDied if failure_of(error).code == "process_died" else ExecutorUnfit)(said) from error
        finally:
            context.setJobDescription(None)


def _cause(error: Exception) -> str:
    """Return why Python did not start on an executor, or why its task failed."""
    found = _DAEMON.search(str(error))
    return " ".join(found["said"].split()) if found else failure_of(error).message


@contextmanager
def _sent_by_value() -> Iterator[None]:
    from pyspark import cloudpickle

    pickler: Any = cloudpickle
    pickler.register_pickle_by_value(probe)
    try:
        yield
    finally:
        pickler.unregister_pickle_by_value(probe)


@contextmanager
def _warning_of_silence(context: Any) -> Iterator[None]:
    """Say what the run waits for if no executor takes a task: a cluster may be full, or have no workers."""
    ended = threading.Event()

    def warn() -> None:
        while not ended.wait(_WAIT_SECONDS):
            count = len(executor_ids(context))
            logger.warning("waiting for Spark: %d executors, and no task has begun or ended", count)

    thread = threading.Thread(target=warn, name="penstock-preflight", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def check_here(needs: Needs) -> None:
    """Check in a task: load the functions, open the database, write to the folders. Raises what is wrong."""
    from penstock.spark.logs import log_at
    from penstock.spark.pipelines.sinks.folders import check_writable

    for one in needs.functions:
        sys.path[:0] = [place for place in one.path if place not in sys.path]
        one.load()
    log_at(needs.url).end()
    for folder in needs.folders:
        check_writable(folder)


def _version() -> str | None:
    try:
        return metadata.version("penstock")
    except metadata.PackageNotFoundError:  # run from a source folder
        return None
