"""Run jobs on the local engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import penstock
from penstock.declare.job import JobPolicy, JobType, job_type_of
from penstock.engine.local.engine import LocalEngine
from tests.support.local_engine import PATIENCE_SECONDS

QUICK = penstock.Retry(base_seconds=0, jitter=0)


def job_type(function: Any, name: str = "a", *, schema: Any = None, queue: str = "default", **policy: Any) -> JobType:
    """A type whose failed jobs are due at once."""
    return job_type_of(name, queue, function, schema, JobPolicy(**{"retry": QUICK, **policy}))


@contextmanager
def job_engine(log: penstock.Log, *jobs: JobType, **options: Any) -> Iterator[LocalEngine]:
    """An engine at work; stopped at the end."""
    engine = LocalEngine(log, (), jobs, **options)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()
        assert engine.wait(PATIENCE_SECONDS), f"still working: {engine.snapshot()}"


def run_jobs_until_drained(log: penstock.Log, *jobs: JobType) -> LocalEngine:
    """Run an engine until no job is left; return it for its counters."""
    with job_engine(log, *jobs, until_drained=True) as engine:
        assert engine.wait(PATIENCE_SECONDS), f"still working: {engine.snapshot()}"
    return engine
