"""The Spark session: the user's own, or a new one with sane settings."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from typing import Any

from penstock.errors import EngineMissing, LocalMasterNeeded, SparkConnectRefused, SparkUnavailable
from penstock.spark.causes import failure_of
from penstock.spark.java import find_java
from penstock.spark.settings import DEFAULTS, LOCAL_DEFAULTS, launched, set_by_user

_CONNECT_SECONDS = 10.0
_TASK_FAILURES = 8  # a killed Python worker is a failed task; plain local mode fails the Spark job with the first
_LOCAL = re.compile(r"local(?:\[(?P<slots>\*|\d+)(?:,\s*(?P<failures>\d+))?\])?")


def active_session() -> Any | None:
    """Return this process's session, if it has one; `SparkConnectRefused` if it is a Spark Connect session."""
    sql = _pyspark_sql()
    check_no_remote()
    from pyspark import SparkContext

    found = sql.SparkSession.getActiveSession()
    if found is None and SparkContext._active_spark_context is not None:
        return sql.SparkSession.builder.getOrCreate()  # a context of the user's, or a session of another thread
    return found


def make_session(master: str | None = None, *, name: str = "penstock", config: Mapping[str, str] | None = None) -> Any:
    """Make a session, with the Java of `find_java`.

    What spark-submit, spark-defaults.conf or `config` say is kept; only what nobody has set is set here: quiet, in UTC,
    on all cores of this machine. An existing session is returned as it is.
    """
    sql = _pyspark_sql()
    check_no_remote()
    os.environ["JAVA_HOME"] = str(find_java())
    users = set_by_user()
    given = {**users, **(config or {})}
    check_not_connect(given)
    chosen = complete(master) if master is not None else given.get("spark.master") or complete(None)
    python = given.get("spark.pyspark.python", sys.executable)
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    check_reachable(chosen)
    settings = dict(DEFAULTS)
    if is_local(chosen):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {**LOCAL_DEFAULTS, "spark.sql.shuffle.partitions": str(max(2, slots_of(complete(chosen))))}
    settings = {key: value for key, value in settings.items() if key not in given} | dict(config or {})
    builder = sql.SparkSession.builder.master(chosen)
    if "spark.app.name" not in given:
        builder = builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        _start_jvm({**settings, "spark.master": chosen}, users)
        session = builder.getOrCreate()
    except Exception as error:
        raise SparkUnavailable(f"Spark did not start on {chosen}: {failure_of(error).message}") from error
    if "spark.log.level" not in given:
        session.sparkContext.setLogLevel("ERROR")
    return session


def _start_jvm(settings: Mapping[str, str], users: Mapping[str, str]) -> None:
    """Start the JVM in a session of its own, so that signals to this process and its group do not end it first."""
    from pyspark import SparkConf, SparkContext, java_gateway

    launch_gateway: Any = java_gateway.launch_gateway
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        conf = SparkConf(loadDefaults=False)
        for key, value in settings.items():
            conf.set(key, value)
        launched.update((key, value) for key, value in settings.items() if users.get(key) != value)
        SparkContext._gateway = launch_gateway(conf, {"start_new_session": True})
        SparkContext._jvm = SparkContext._gateway.jvm


def check_no_remote() -> None:
    """`SparkConnectRefused` if the environment, or a session of this process, asks for Spark Connect."""
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        if os.environ.get(name):
            raise SparkConnectRefused(f"{name} is set: this process uses Spark Connect.")
    if os.environ.get("SPARK_API_MODE", "").lower() == "connect":
        raise SparkConnectRefused("SPARK_API_MODE is connect: this process uses Spark Connect.")


def check_not_connect(settings: Mapping[str, str]) -> None:
    """`SparkConnectRefused` if settings ask for Spark Connect."""
    if settings.get("spark.remote") or settings.get("spark.api.mode", "").lower() == "connect":
        raise SparkConnectRefused("The settings of Spark ask for Spark Connect (spark.remote or spark.api.mode).")


def check_reachable(master: str) -> None:
    """`SparkUnavailable` if no standalone master listens at this address: Spark itself would try for minutes."""
    scheme, _, places = master.partition("://")
    if scheme != "spark":
        return
    failures = []
    for place in places.split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
            return
        except (OSError, ValueError) as error:
            failures.append(f"{place}: {error}")
    raise SparkUnavailable(f"There is no Spark master at {'; '.join(failures)}.")


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
