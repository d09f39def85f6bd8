"""Parquet files in a file system of Hadoop's: Spark's own writer writes them into a hidden folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

from penstock.core.lease import LeaseRow
from penstock.core.signals import Unavailable
from penstock.errors import InvalidPipeline
from penstock.sinks import Parquet
from penstock.spark.causes import first_line
from penstock.spark.pipelines.failures import ERROR, OFFSET, TEXT_LENGTH
from penstock.spark.pipelines.sinks.base import Aside, Move, Written, add_errors
from penstock.spark.pipelines.sinks.foreach import errors_of, of_events
from penstock.spark.pipelines.sinks.hadoop_folder import HadoopFolder, files_are_away
from penstock.spark.pipelines.sinks.late_names import LateNames

_ANSWER_SECONDS: Final = 60.0
_CODECS: Final = {"lz4": "lz4_raw"}  # Spark's names, where they differ


class HadoopParquetWriter:
    """The sink `Parquet` for a scheme that Spark's Hadoop knows."""

    def __init__(self, spark: Any, sink: Parquet, names: LateNames) -> None:
        self._spark = spark
        self._sink = sink
        self._names = names

    def check(self, schema: Any) -> Sequence[str]:
        """Write no rows: what the file system, its rights or Parquet itself refuse is said now."""
        from pyspark.sql.types import StructType

        fields = StructType([field for field in schema.fields if field.name != ERROR])
        if not fields.fields:
            raise InvalidPipeline("The result has no columns.")
        name = self._names.hidden_name(0)
        try:
            folder = self._folder()
            folder.make()
            self._write(self._spark.createDataFrame([], fields), folder.place(name))
            folder.drop(name)
        except Exception as error:  # of Java, of Spark, or of ours
            raise InvalidPipeline(f"{self._sink.path} cannot be written: {first_line(error)}.") from error
        return list(fields.names)

    def write(self, rows: Any, piece: LeaseRow) -> Written:
        """One Spark job writes the good rows and observes the errors, both of the attempts that committed."""
        folder, name = self._folder(), self._names.hidden_name(piece.id)
        good, seen = _observed(rows)
        self._write(good, folder.place(name))
        found = self._answer(seen)
        if found is None:  # the plan itself says that no row is good, and Spark ran nothing of it
            folder.drop(name)
            return Written([], errors_of(rows) if ERROR in rows.columns else {}, None)
        failed: dict[int, str] = {}
        if found.get("errors"):
            add_errors(failed, [one[OFFSET] for one in found["errors"]], [one[ERROR] for one in found["errors"]])
            name = self._without(folder, name, failed, self._names.hidden_name(piece.id), good.schema)
        count = found.get("good", 0)
        return Written([Aside(f"{name}/{part}", count) for part in folder.parts(name)] if count else [], failed, None)

    def _answer(self, seen: Any) -> dict[str, Any] | None:
        """Return what was observed; None if nothing ran. Spark's bus of events brings it, unless it is overrun."""
        self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(int(_ANSWER_SECONDS * 1000))
        if not seen._jo.future().isCompleted():
            raise Unavailable("Spark has not said how many rows it wrote, and which ones have errors.")
        return dict(seen.get) if seen._jo.getRow().size() else None

    def _without(self, folder: HadoopFolder, name: str, failed: Mapping[int, str], again: str, schema: Any) -> str:
        """Write the rows again without those of failed events, if there are any; return the folder that counts."""
        rows = self._spark.read.schema(schema).parquet(folder.place(name))
        if of_events(rows, failed, "left_semi").isEmpty():
            return name
        self._write(of_events(rows, failed, "left_anti"), folder.place(again))
        folder.drop(name)
        return again

    def move(self, row: LeaseRow, aside: Sequence[Aside], failed: Set[int]) -> Move | None:
        return self._names.move(row, aside)

    def finish(self) -> None:
        self._names.finish()

    def clean(self) -> None:
        self._names.clean()

    def _folder(self) -> HadoopFolder:
        return HadoopFolder(self._spark, self._sink.path)

    def _write(self, rows: Any, place: str) -> None:
        compression = self._sink.compression
        quiet = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
        try:
            rows.write.options(compression=_CODECS.get(compression, compression), **quiet).parquet(place)
        except Exception as error:
            away = files_are_away(error)
            if away is None:
                raise
            raise Unavailable(f"{self._sink.path} cannot be written: {away}") from error


def _observed(rows: Any) -> tuple[Any, Any]:
    """Return the good rows, and what is observed of all rows while the good ones are written."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    if ERROR not in rows.columns:
        return rows.observe(seen, f.count(f.lit(1)).alias("good")), seen
    error = f.substring(f.col(ERROR).cast("string"), 1, TEXT_LENGTH).alias(ERROR)
    bad = f.when(f.col(ERROR).isNotNull(), f.struct(f.col(OFFSET), error))
    metrics = [f.count(f.when(f.col(ERROR).isNull(), 1)).alias("good"), f.collect_list(bad).alias("errors")]
    return rows.observe(seen, *metrics).where(f"{ERROR} is null").drop(ERROR), seen
