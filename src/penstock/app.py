"""`App`: declares the handlers, pipelines and queries of one log, and runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from penstock.declare.declarations import Declarations
from penstock.declare.job import JobType, choose
from penstock.declare.locate import check_not_loading
from penstock.declare.pipeline import Pipeline
from penstock.declare.query import Query
from penstock.declare.subscription import Subscription
from penstock.engine.drain import Served
from penstock.engine.outcome import Outcome
from penstock.errors import InvalidInput, UnknownGroup
from penstock.launch import Launch, Submit, ingest_only, launch, run_locally
from penstock.log.log import Log
from penstock.log.open import open_log
from penstock.telemetry.settings import Telemetry

S = TypeVar("S", bound=Served)


class App(Declarations):
    """Handlers, pipelines and queries by stream and group. Declaring does not touch the database; `run` does.

    >>> app = App("sqlite:///shop.db", name="shop")
    >>> @app.subscribe("orders", group="fraud")
    ... def screen(event):
    ...     print(event.json())
    """

    def __init__(self, url: str | None = None, *, name: str = "app", telemetry: Telemetry | None = None) -> None:
        super().__init__(name)
        self.url = url  # None: $PENSTOCK_URL, else sqlite:///penstock.db
        self.telemetry = telemetry or Telemetry()

    def open(self) -> Log:
        """Open the app's log; the caller closes it."""
        return open_log(self.url)

    def chosen(self, groups: Sequence[str] | None = None) -> list[Subscription]:
        """Return the subscriptions of these groups (default: all); `UnknownGroup` if one is not declared."""
        return self._chosen(self.subscriptions, groups)

    def chosen_pipelines(self, groups: Sequence[str] | None = None) -> list[Pipeline]:
        """Return the pipelines of these groups (default: all)."""
        return self._chosen(self.pipelines, groups)

    def chosen_queries(self, groups: Sequence[str] | None = None) -> list[Query]:
        """Return the queries of these groups (default: all)."""
        return self._chosen(self.queries, groups)

    def _chosen(self, declared: Sequence[S], groups: Sequence[str] | None) -> list[S]:
        self._check_groups(groups)
        return [one for one in declared if not groups or one.group in groups]

    @property
    def groups(self) -> set[str]:
        """The names of all groups that are declared."""
        declared: list[Served] = [*self.subscriptions, *self.pipelines, *self.queries]
        return {one.group for one in declared}

    def chosen_jobs(self, types: Sequence[str] | None = None, concurrency: int | None = None) -> list[JobType]:
        """Return job types (default: all), perhaps with another concurrency; `UnknownJob` if one is not declared."""
        return choose(self.jobs, types, concurrency, self.name)

    def work(
        self,
        *,
        types: Sequence[str] | None = None,
        concurrency: int | None = None,
        until_drained: bool = False,
        processes: int = 1,
    ) -> Outcome:
        """Do the jobs of these types (default: all) until Ctrl-C or SIGTERM, or until nothing is left to do.

        `concurrency` replaces what the types declare; with `processes` > 1 it holds for each of them.
        """
        check_not_loading()
        jobs = self.chosen_jobs(types, concurrency)
        if not jobs:
            raise InvalidInput(f"The app {self.name!r} declares no jobs.")
        with self.telemetry.running():
            return run_locally(self, [], jobs, Launch("local", until_drained, processes), concurrency)

    def run_ingests(self, *, until_drained: bool = False, master: str | None = None) -> Outcome:
        """Ingest from all sources until Ctrl-C or SIGTERM, or, with `until_drained`, until they have nothing more.

        Files are read by Spark: by the active session, else by a new one for `master`.
        """
        check_not_loading()
        with self.telemetry.running():
            return ingest_only(self, until_drained, master)

    def _check_groups(self, groups: Sequence[str] | None) -> None:
        known = self.groups
        if not known and not self.jobs and not self.ingests:
            raise InvalidInput(f"The app {self.name!r} declares no handlers, no pipelines, no queries and no jobs.")
        for group in groups or ():
            if group not in known:
                raise UnknownGroup(f"The app {self.name!r} has no group {group!r}; it has {', '.join(sorted(known))}.")

    def run(
        self,
        engine: str = "spark",
        *,
        master: str | None = None,
        groups: Sequence[str] | None = None,
        until_drained: bool = False,
        processes: int = 1,
        spark: Any = None,
        conf: Mapping[str, str] | None = None,
        py_files: Sequence[str] = (),
        archives: Sequence[str] = (),
        files: Sequence[str] = (),
    ) -> Outcome:
        """Run until Ctrl-C or SIGTERM, or, with `until_drained`, until nothing is left to do.

        `spark` is the session to use; default: the active one, else a new one for `master` (default: what spark-submit
        or spark-defaults.conf say, else all cores of this machine). `conf`, `py_files`, `archives` and `files` are as
        spark-submit has them. With `processes` > 1 each process of the local engine imports the app and serves all
        groups and jobs; one that dies is replaced.

        It restores signal handlers and the thread switch interval. It does not undo what the local engine tells the
        garbage collector once (`gc.freeze()`, a higher threshold), nor the environment variables (JAVA_HOME, the log's
        password) that Spark's processes inherit.
        """
        check_not_loading()
        how = Launch(engine, until_drained, processes, spark, Submit(master, conf or {}, py_files, archives, files))
        with self.telemetry.running():
            return launch(self, how, groups)
