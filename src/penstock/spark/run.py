"""Run an app on Spark in the foreground: find or make a session, check the executors, and stop it if we made it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.declare.ingest import Ingest
from penstock.declare.job import JobType, PortableJob, ScheduledJob, portable_job
from penstock.declare.load import app_files
from penstock.declare.pipeline import Pipeline
from penstock.declare.portable import PortableSubscription, portable
from penstock.declare.query import Query
from penstock.declare.subscription import Subscription
from penstock.engine import tracing
from penstock.engine.drain import Served
from penstock.engine.foreground import Orders, run_engine
from penstock.engine.outcome import Outcome
from penstock.engine.run_row import running
from penstock.errors import InvalidInput
from penstock.log.log import Log
from penstock.spark import preflight, secrets
from penstock.spark.handlers.engine import SparkEngine
from penstock.spark.logs import limit_connections
from penstock.spark.session import active_session, check_classic, check_master, check_no_remote, complete, make_session
from penstock.spark.settings import set_by_user


@dataclass(frozen=True, slots=True)
class Submit:
    """What a user says about the Spark application, as `spark-submit` takes it."""

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    py_files: Sequence[str] = ()
    archives: Sequence[str] = ()
    files: Sequence[str] = ()

    def check_files(self) -> None:
        """`InvalidInput` if a local file is missing; what has a scheme is Spark's to find."""
        for one in (*self.py_files, *self.archives, *self.files):
            place = one.partition("#")[0]
            if "://" not in place and not Path(place).exists():
                raise InvalidInput(f"There is no file {place} to send to the executors.")

    def send(self, context: Any) -> None:
        """Send the files to all executors, those that come later, too."""
        for one in self.py_files:
            context.addPyFile(one)
        for one in self.archives:
            context.addArchive(one)
        for one in self.files:
            context.addFile(one)


def run_spark(
    log: Log,
    subscriptions: Sequence[Subscription],
    pipelines: Sequence[Pipeline] = (),
    queries: Sequence[Query] = (),
    jobs: Sequence[JobType] = (),
    schedules: Sequence[ScheduledJob] = (),
    sources: Callable[[Any], Sequence[Ingest]] = lambda session: (),
    *,
    name: str,
    submit: Submit | None = None,
    spark: Any = None,
    until_drained: bool = False,
) -> Outcome:
    """Run until a signal or an operator stops it, or until drained. Everything is checked before the first claim.

    `sources` gets the session, which may read some of them, and returns what is ingested.
    """
    packed: list[PortableSubscription | PortableJob] = [
        *(portable(one) for one in subscriptions),
        *(portable_job(one) for one in jobs),
    ]
    said = submit or Submit()
    said.check_files()
    with session_for(spark, said, name, log.store.url) as session:
        _pickle_by_value(app_files())
        said.send(session.sparkContext)
        limit_connections(session)
        session.sparkContext.environment.update(tracing.environment())
        folders = [place for one in pipelines for place in one.sink.folders]
        preflight.check_executors(
            session, preflight.Needs(secrets.hide(session, log.store.url), tuple(packed), tuple(folders))
        )
        orders = Orders()
        ingests = sources(session)
        served: list[Served | Ingest] = [*subscriptions, *pipelines, *queries, *jobs, *ingests]
        with running(log, "spark", [one.name for one in served], name, orders.obey) as run:
            declared = (subscriptions, pipelines, queries, jobs, schedules)
            engine = SparkEngine(log, session, log.store.url, *declared, until_drained=until_drained, run=run)
            engine.ingest(ingests)
            return run_engine(engine, orders)


@contextmanager
def session_for(spark: Any, said: Submit, name: str, url: str) -> Iterator[Any]:
    """Yield the given session, else the active one, else a new one, which is stopped at the end."""
    check_no_remote()
    named = said.master or said.conf.get("spark.master")
    if named is not None:
        check_master(complete(named), url)
    found = spark if spark is not None else active_session()
    if found is not None:
        check_classic(found)
        _check_fits(found, said)
        check_master(found.sparkContext.master, url)
        yield found
        return
    check_master(named or set_by_user().get("spark.master") or "local", url)
    made = make_session(said.master, name=name, config=said.conf)
    try:
        yield made
    finally:
        with suppress(Exception):  # it may have stopped by itself
            made.stop()


def _pickle_by_value(modules: Iterable[ModuleType]) -> None:
    """Send functions of these modules as code, for UDFs of pipelines: no other process can import their names."""
    from pyspark import cloudpickle

    pickler: Any = cloudpickle
    for one in modules:
        pickler.register_pickle_by_value(one)


def _check_fits(session: Any, said: Submit) -> None:
    """`InvalidInput` if a session that is not ours would have to be another one."""
    master = session.sparkContext.master
    if said.master is not None and said.master != master and complete(said.master) != master:
        raise InvalidInput(
            f"A Spark session with the master {master} is active, and it is not ours to stop: "
            f"stop it before you run on {said.master}, or leave the master out."
        )
    for key, value in said.conf.items():
        if session.conf.get(key, None) != value:
            raise InvalidInput(f"A Spark session is active without {key}={value}: set it when you make the session.")
