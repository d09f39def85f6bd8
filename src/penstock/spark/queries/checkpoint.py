"""The checkpoint of a query: where it is, whether it is new, and how Spark writes it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.errors import InvalidQuery
from penstock.spark.causes import first_line
from penstock.spark.session import is_local

MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
# Renames files directly: a micro-batch takes 200 ms with it, 350 ms without. On an object store a rename copies.
RENAMING: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_RENAMES: Final = frozenset({"", "file", "hdfs", "viewfs"})  # schemes whose rename is one step
_setting = threading.Lock()


class Checkpoint:
    """The folder of one query's checkpoint."""

    def __init__(self, spark: Any, place: str) -> None:
        self._spark = spark
        self.place = place

    def check(self) -> None:
        """Make the folder; `InvalidQuery` if that is impossible, or if only the driver could see it."""
        master = self._spark.sparkContext.master
        if _scheme(self.place) in ("", "file") and not is_local(master):
            raise InvalidQuery(
                f"The checkpoint {self.place} is on this machine, and the executors of {master} keep state in it: "
                "set checkpoint= to a folder that all of them reach (hdfs://…, s3a://…)."
            )
        try:
            files, folder = self._files()
            made = files.mkdirs(folder)
        except Exception as error:
            raise InvalidQuery(f"The checkpoint {self.place} cannot be used: {first_line(error)}.") from error
        if not made:
            raise InvalidQuery(f"The checkpoint {self.place} cannot be made.")

    def reader(self) -> str | None:
        """Return the reader that its last planned batch belongs to; None if it has planned none."""
        files, folder = self._files()
        path = self._spark._jvm.org.apache.hadoop.fs.Path
        offsets = path(folder, "offsets")
        if not files.exists(offsets):
            return None
        numbers = [int(name) for one in files.listStatus(offsets) if (name := one.getPath().getName()).isdigit()]
        if not numbers:
            return None
        stream = files.open(path(offsets, str(max(numbers))))
        try:
            text = str(self._spark._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
        return _reader(text)

    def _files(self) -> tuple[Any, Any]:
        """Return Hadoop's file system of the folder, and its path there."""
        folder = self._spark._jvm.org.apache.hadoop.fs.Path(self.place)
        return folder.getFileSystem(self._spark._jsparkSession.sessionState().newHadoopConf()), folder

    @contextmanager
    def written_directly(self) -> Iterator[None]:
        """While a query is started: let Spark rename files directly, where that is right and nobody has set it.

        A query copies the settings of its session when it starts, so the session is as before afterwards.
        """
        with _setting:
            set_before = self._spark.conf.get(MANAGER, None)
            if _scheme(self.place) not in _RENAMES or set_before is not None:
                yield
                return
            self._spark.conf.set(MANAGER, RENAMING)
            try:
                yield
            finally:
                self._spark.conf.unset(MANAGER)


def _scheme(place: str) -> str:
    return urlsplit(place).scheme.lower() if "://" in place else ""


def _reader(offsets: str) -> str | None:
    """Parse an offset log's entry: a version, metadata, and the offset of every source."""
    for line in offsets.splitlines()[2:]:
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and "reader" in said:
            return str(said["reader"])
    return None
