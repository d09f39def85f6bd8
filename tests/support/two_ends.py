"""How xdist's workers share the tests: whole files, from the two ends of one queue.

A file's tests stay together, so what a file sets up is set up once. Files that use Spark are at one end: as long as
there are others, one worker of two starts a session and a cluster. The longest files are outermost, so that the workers
meet among short ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SPARK = ("tests/spark/", "tests/examples/")
LONG = (  # longest first; the others come in any order
    "tests/spark/test_cluster.py",
    "tests/spark/test_cluster_faults.py",
    "tests/cli/test_run.py",
    "tests/engine/test_loop.py",
    "tests/test_docs.py",
    "tests/cli/test_demo.py",
    "tests/conformance/test_plans.py",
    "tests/jobs/test_worker.py",
    "tests/conformance/test_model.py",
    "tests/engine/test_batch.py",
    "tests/spark/test_source_batch.py",
    "tests/spark/test_source_write.py",
    "tests/spark/test_source_stream.py",
    "tests/spark/test_sinks.py",
    "tests/spark/test_handlers.py",
    "tests/spark/test_pipeline.py",
    "tests/spark/test_run.py",
    "tests/spark/test_queries.py",
    "tests/spark/test_windows.py",
    "tests/engine/test_process_deaths.py",
    "tests/engine/test_crash.py",
    "tests/engine/test_engine_survival.py",
    "tests/engine/test_pipelines.py",
    "tests/examples/test_examples.py",
)


class TwoEnds(LoadScopeScheduling):
    """The first worker of every two begins with Spark, the second one with everything else."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        number = int(node.gateway.id.removeprefix("gw"))
        waiting = in_order(self.workqueue)
        self.workqueue.move_to_end(waiting[-1 if number % 2 else 0], last=False)
        super()._assign_work_unit(node)  # takes the first

    def _reschedule(self, node: WorkerController) -> None:
        """Not before the last test: a worker with two long ones left would keep a file that the other could run."""
        if self._pending_of(self.assigned_work[node]) <= 1:
            super()._reschedule(node)


def in_order(files: Iterable[str]) -> list[str]:
    """The queue: Spark's files, long ones first, then the others, long ones last."""
    places = {file: place for place, file in enumerate(LONG)}
    ranked = sorted(files, key=lambda file: places.get(file, len(places)))
    spark = [file for file in ranked if file.startswith(SPARK)]
    return spark + [file for file in reversed(ranked) if not file.startswith(SPARK)]
