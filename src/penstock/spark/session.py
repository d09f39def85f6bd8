"""The Spark session: the user's own, or a new one with sane settings."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping
from importlib import resources
from typing import Any

from penstock.errors import EngineMissing, LocalMasterNeeded, SparkConnectRefused
from penstock.spark.java import find_java

logger = logging.getLogger("penstock")
_TASK_FAILURES = 8  # a killed Python worker is a failed task; plain local mode fails the Spark job with the first
_LOCAL = re.compile(r"local(?:\[(?P<slots>\*|\d+)(?:,\s*(?P<failures>\d+))?\])?")


def active_session() -> Any | None:
    """Return the active session, if any; `SparkConnectRefused` if it is a Spark Connect session."""
    sql = _pyspark_sql()
    found = sql.SparkSession.getActiveSession()
    if found is not None:
        check_classic(found)
    return found


def make_session(master: str | None = None, *, name: str = "penstock", config: Mapping[str, str] | None = None) -> Any:
    """Make a session: quiet, in UTC, with the Java of `find_java`. An existing one is reused and keeps its master."""
    sql = _pyspark_sql()
    chosen = complete(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ["JAVA_HOME"] = str(find_java())
    settings = dict(_SETTINGS)
    if is_local(chosen):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {"spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": str(max(2, slots_of(chosen)))}
    settings |= config or {}
    builder = sql.SparkSession.builder.master(chosen).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def has_ended(context: Any) -> bool:
    """Whether the Spark application of a context has stopped."""
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except Exception:  # the JVM does not answer
        return True


def check_classic(session: Any) -> Any:
    """Return the session; `SparkConnectRefused` if this process has no access to its JVM."""
    if "connect" in type(session).__module__.split("."):
        raise SparkConnectRefused
    return session


def check_master(master: str, url: str | None) -> None:
    """Check that a SQLite file has a local master, because it is on this machine."""
    chosen = url or os.environ.get("PENSTOCK_URL") or "sqlite:"
    if chosen.startswith("sqlite:") and not is_local(master):
        raise LocalMasterNeeded(f"The log is a SQLite file, and the Spark master is {master}.")


def complete(master: str | None) -> str:
    """Return a master as Spark takes it; a local one tolerates killed workers.

    >>> complete("local[2]")
    'local[2,8]'
    """
    found = _LOCAL.fullmatch(master or "local[*]")
    if found is None:
        return master or ""
    slots = {"*": str(_cores()), None: "1"}.get(found["slots"], found["slots"])
    return f"local[{slots},{found['failures'] or _TASK_FAILURES}]"


def is_local(master: str) -> bool:
    """Whether all of Spark runs on this machine, in the driver's own JVM."""
    return _LOCAL.fullmatch(master) is not None


def slots_of(master: str) -> int:
    """Return how many tasks a completed local master runs at once."""
    found = _LOCAL.fullmatch(master)
    assert found is not None
    return int(found["slots"])


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pyspark_sql() -> Any:
    try:
        from pyspark import sql
    except ImportError as error:
        raise EngineMissing from error
    return sql


_SETTINGS = {
    "spark.scheduler.mode": "FAIR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.daemon.module": "penstock.spark.daemon",  # new workers start in milliseconds, not seconds
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Rename files directly: a micro-batch takes 200 ms with this, 350 ms without.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.extraJavaOptions": (
        f"-Dlog4j2.configurationFile=file:{resources.files('penstock.spark') / 'log4j2.properties'}"
    ),
}
