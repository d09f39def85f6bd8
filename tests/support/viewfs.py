"""A local folder under a scheme that only Spark's Hadoop knows."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any


def viewfs_url(place: str) -> str:
    """The URL of a folder, once it is mounted."""
    return f"viewfs://{_cluster(place)}/lake"


def mount_viewfs(spark: Any, place: str) -> str:
    """Mount a folder in this session and return its URL."""
    Path(place).mkdir(parents=True, exist_ok=True)
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set(f"fs.viewfs.mounttable.{_cluster(place)}.link./lake", Path(place).as_uri())
    return viewfs_url(place)


def _cluster(place: str) -> str:
    """A name for each folder: Hadoop keeps what it has mounted under one."""
    return f"c{hashlib.sha256(place.encode()).hexdigest()[:12]}"
