"""Folders that Spark's own Hadoop reads and writes, through the driver's JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from penstock.log.pipelines import Rename
from penstock.spark.causes import OF_FILES, first_line
from penstock.spark.pipelines.sinks.folders import HIDDEN


def hadoop_knows(spark: Any, scheme: str) -> bool:
    """Whether Spark has a file system for a scheme; it need not be reachable."""
    jvm = spark.sparkContext._jvm
    try:
        with _os_errors():
            jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, _configuration(spark))
    except OSError:
        return False
    return True


class HadoopFolder:
    """A folder of Hadoop's. Everything raises `OSError`."""

    def __init__(self, spark: Any, path: str) -> None:
        self._path = path.rstrip("/")
        with _os_errors():
            self._java_path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path
            self._files = self._java_path(self._path).getFileSystem(_configuration(spark))

    def place(self, name: str) -> str:
        """The whole path of something hidden."""
        return f"{self._path}/{HIDDEN}/{name}"

    def make(self) -> None:
        """Make the hidden part."""
        with _os_errors():
            if not self._files.mkdirs(self._java_path(f"{self._path}/{HIDDEN}")):
                raise OSError("the folder cannot be made")

    def parts(self, name: str) -> list[str]:
        """Return the names of the data files that a Spark job wrote."""
        with _os_errors():
            listed = [one.getPath().getName() for one in self._files.listStatus(self._java_path(self.place(name)))]
        return sorted(one for one in listed if one.endswith(".parquet") and one[0] not in "._")

    def give_name(self, one: Rename) -> None:
        source, target = (self._java_path(f"{self._path}/{name}") for name in (one.source, one.target))
        with _os_errors():
            if self._files.exists(source) and self._files.rename(source, target):
                return
            if self._files.exists(source):
                raise OSError(f"{one.source} cannot be renamed")
            if not self._files.exists(target):
                raise FileNotFoundError(f"neither {one.source} nor {one.target} exists")

    def hidden(self) -> list[str]:
        hidden = self._java_path(f"{self._path}/{HIDDEN}")
        with _os_errors():
            return [one.getPath().getName() for one in self._files.listStatus(hidden)]

    def drop(self, name: str) -> None:
        with _os_errors():
            self._files.delete(self._java_path(self.place(name)), True)


class FoundFile(NamedTuple):
    """A file of a listing."""

    path: str
    size: int


def list_files(spark: Any, path: str) -> list[FoundFile]:
    """Return the files of a folder, or those that fit a pattern, without hidden ones; `OSError` if that fails."""
    with _os_errors():
        java_path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(path)
        system = java_path.getFileSystem(_configuration(spark))
        found = [*(system.globStatus(java_path) or ())]
        if len(found) == 1 and found[0].isDirectory():
            found = [*system.listStatus(found[0].getPath())]
        return [
            FoundFile(str(one.getPath().toString()), int(one.getLen()))
            for one in found
            if one.isFile() and str(one.getPath().getName())[0] not in "._"
        ]


def _configuration(spark: Any) -> Any:
    return spark._jsparkSession.sessionState().newHadoopConf()


@contextmanager
def _os_errors() -> Iterator[None]:
    """Raise what Java says as an `OSError`."""
    try:
        yield
    except Exception as error:
        java = getattr(error, "java_exception", None)
        if java is None:
            raise
        raise OSError(first_line(Exception(java.toString()))) from error


def files_are_away(error: Exception) -> str | None:
    """Return what the file system says if it is the cause of an error of the driver's JVM."""
    java = getattr(error, "java_exception", None)
    while java is not None:
        if str(java.getClass().getName()).startswith(OF_FILES):
            return first_line(Exception(java.toString()))
        java = java.getCause()
    return None
