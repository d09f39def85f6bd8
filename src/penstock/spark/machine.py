"""Where a process is: a SQLite file is on one machine, and so must everybody be who opens it."""

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
    """Let the driver-side processes of a data source know the session's master; on Spark Connect nobody here does."""
    if "connect" not in type(spark).__module__.split("."):
        context = spark.sparkContext
        context.environment[_MASTER] = context.master


def check_driver(url: str) -> None:
    """On the driver's side, before anything is opened: `LocalMasterNeeded` for a SQLite file and a remote master."""
    master = os.environ.get(_MASTER)
    if master is not None:
        check_master(master, url)


def here() -> str:
    """This machine."""
    return f"{socket.gethostname()} {_BOOT.read_text() if _BOOT.exists() else ''}".strip()


def check_here(url: str, driver: str) -> None:
    """In a task, where the master is not known: `LocalMasterNeeded` for a SQLite file on another machine."""
    if url.startswith("sqlite:") and here() != driver:
        there = driver.partition(" ")[0]
        raise LocalMasterNeeded(f"The log is a SQLite file on {there}, and this task runs on {socket.gethostname()}.")
