"""Start the engine that an app runs on; engines are imported when they are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, Protocol

from penstock.connect.files import Files
from penstock.declare.ingest import Ingest
from penstock.declare.job import JobType, ScheduledJob, scheduled
from penstock.declare.locate import reference_of
from penstock.declare.pipeline import Pipeline, check_local
from penstock.declare.query import Query
from penstock.declare.subscription import Subscription
from penstock.engine.ingest.engine import run_ingest
from penstock.engine.outcome import Outcome, check_processes
from penstock.errors import InvalidInput
from penstock.log.log import Log


class App(Protocol):
    """An app, as far as it is run."""

    name: str
    url: str | None
    jobs: list[JobType]
    schedules: list[ScheduledJob]
    ingests: list[Ingest]

    def open(self) -> Log: ...
    def chosen(self, groups: Sequence[str] | None = None) -> list[Subscription]: ...
    def chosen_pipelines(self, groups: Sequence[str] | None = None) -> list[Pipeline]: ...
    def chosen_queries(self, groups: Sequence[str] | None = None) -> list[Query]: ...


class Submit(NamedTuple):
    """What is passed on to Spark, as spark-submit has it."""

    master: str | None = None
    conf: Mapping[str, str] = {}
    py_files: Sequence[str] = ()
    archives: Sequence[str] = ()
    files: Sequence[str] = ()


class Launch(NamedTuple):
    """How an app is to be run."""

    engine: str
    until_drained: bool
    processes: int
    spark: Any = None  # a session
    submit: Submit = Submit()


def launch(app: App, how: Launch, groups: Sequence[str] | None) -> Outcome:
    """Run an app until it is stopped or drained, or some of its groups, and then no jobs and no ingests."""
    if how.engine not in ("spark", "local"):
        raise InvalidInput(f'engine is "spark" or "local", not {how.engine!r}.')
    if how.engine == "local" and (how.spark is not None or any(how.submit)):
        raise InvalidInput("master, spark, conf, py_files, archives and files are options of the Spark engine.")
    check_processes(how.processes)
    app.chosen(groups)  # before anything is started
    if how.engine == "spark":
        return _on_spark(app, how, groups)
    check_local([*app.chosen_pipelines(groups), *app.chosen_queries(groups)])
    if not groups and (files := _files_of(app.ingests)):
        raise InvalidInput(f"{files[0].source.name}: files are read by Spark. Use its engine, or name groups.")
    return run_locally(app, app.chosen(groups), [] if groups else app.jobs, how, ingests=[] if groups else app.ingests)


def _on_spark(app: App, how: Launch, groups: Sequence[str] | None) -> Outcome:
    if how.processes > 1:
        raise InvalidInput("processes is an option of the local engine; Spark uses its own slots.")
    from penstock.spark.run import Submit as SparkSubmit
    from penstock.spark.run import run_spark

    master, conf, *files = how.submit
    jobs = [] if groups else app.jobs
    with app.open() as log:
        return run_spark(
            log,
            app.chosen(groups),
            app.chosen_pipelines(groups),
            app.chosen_queries(groups),
            jobs,
            scheduled(app.schedules, jobs),
            partial(_read_by_spark, [] if groups else app.ingests, log),
            name=app.name,
            submit=SparkSubmit(master, dict(conf), *files),
            spark=how.spark,
            until_drained=how.until_drained,
        )


def ingest_only(app: App, until_drained: bool, master: str | None) -> Outcome:
    """Run the ingests of an app, and nothing else of it; files are read by Spark."""
    if not app.ingests:
        raise InvalidInput(f"The app {app.name!r} ingests nothing.")
    with app.open() as log, ExitStack() as stack:
        ingests = list(app.ingests)
        if _files_of(ingests):
            from penstock.spark.run import Submit as SparkSubmit
            from penstock.spark.run import session_for

            session = stack.enter_context(session_for(None, SparkSubmit(master), app.name, log.store.url))
            ingests = _read_by_spark(ingests, log, session)
        return run_ingest(log, ingests, until_drained=until_drained, app=app.name)


def _files_of(ingests: Sequence[Ingest]) -> list[Ingest]:
    return [one for one in ingests if isinstance(one.source, Files)]


def _read_by_spark(ingests: Sequence[Ingest], log: Log, session: Any) -> list[Ingest]:
    """Let a session read the files among the sources."""
    from penstock.spark.files import on_spark

    return [on_spark(one, log, session) if isinstance(one.source, Files) else one for one in ingests]


def run_locally(
    app: App,
    subscriptions: Sequence[Subscription],
    jobs: Sequence[JobType],
    how: Launch,
    concurrency: int | None = None,
    ingests: Sequence[Ingest] = (),
) -> Outcome:
    """Run these of an app on the local engine; `concurrency` is what the jobs were chosen with."""
    if check_processes(how.processes) == 1:
        from penstock.engine.foreground import run_local

        schedules = scheduled(app.schedules, jobs)
        with app.open() as log:
            declared = (subscriptions, jobs, schedules, ingests)
            return run_local(log, *declared, until_drained=how.until_drained, app=app.name)
    from penstock.engine.local.pool import run_pool

    functions = [
        *(handler.function for one in subscriptions for handler in one.handlers),
        *(one.function for one in jobs),
    ]
    app.open().close()  # report database problems once, here, not in every process
    return run_pool(
        reference_of(app, functions),
        type(app),
        subscriptions,
        jobs,
        processes=how.processes,
        concurrency=concurrency,
        ingest=bool(ingests),
        url=app.url,
        until_drained=how.until_drained,
        name=app.name,
    )
