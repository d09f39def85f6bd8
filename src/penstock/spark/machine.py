"""Check that whoever opens a SQLite file is on the machine that holds it."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from penstock.errors import LocalMasterNeeded
from penstock.spark.session import check_master

_MASTER = "PENSTOCK_SPARK_MASTER"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def tell_master(spark: Any) -> None:
    """Pass the session's master to a data source's driver-side processes; on Spark Connect it is not known."""
    if "connect" not in type(spark).__module__.split("."):
        context = spark.sparkContext
        context.environment[_MASTER] = context.master


def check_driver(url: str) -> None:
    """Check on the driver's side: `LocalMasterNeeded` for a SQLite file with a remote master."""
    master = os.environ.get(_MASTER)
    if master is not None:
        check_master(master, url)


def here() -> str:
    """Return a name for this machine."""
    return f"{socket.gethostname()} {_BOOT.read_text() if _BOOT.exists() else ''}".strip()


def check_here(url: str, driver: str) -> None:
    """Check in a task, which does not know the master: `LocalMasterNeeded` if the SQLite file is elsewhere."""
    if url.startswith("sqlite:") and here() != driver:
        there = driver.partition(" ")[0]
        raise LocalMasterNeeded(f"The log is a SQLite file on {there}, and this task runs on {socket.gethostname()}.")
