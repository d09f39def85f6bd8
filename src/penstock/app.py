"""An app: what a user declares about the groups of one log, and the way to run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from penstock.core import limits
from penstock.core.event import check_name
from penstock.core.retry import Retry
from penstock.declare.locate import being_loaded, reference_of
from penstock.declare.pipeline import Pipeline, Sink, check_local
from penstock.declare.subscription import Function, Policy, Subscription, handler_of
from penstock.engine.outcome import Outcome, check_processes
from penstock.errors import AppNotFound, InvalidInput, PolicyConflict, UnknownGroup
from penstock.log.log import Log
from penstock.log.open import open_log

F = TypeVar("F", bound=Function)


class App:
    """Handlers by stream and group. Declaring touches no database; `run` does.

    >>> app = App("sqlite:///shop.db", name="shop")
    >>> @app.subscribe("orders", group="fraud")
    ... def screen(event):
    ...     print(event.json())
    """

    def __init__(self, url: str | None = None, *, name: str = "app") -> None:
        self.url = url  # None: $PENSTOCK_URL, else sqlite:///penstock.db
        self.name = check_name(name, "name")
        self.subscriptions: list[Subscription] = []
        self.pipelines: list[Pipeline] = []

    def subscribe(
        self,
        stream: str,
        *,
        group: str,
        types: Sequence[str] | None = None,
        start: str | int | datetime = "beginning",
        retry: Retry | None = None,
        lease_seconds: float = limits.LEASE_SECONDS,
        timeout_seconds: float = limits.TIMEOUT_SECONDS,
        ordering: str | None = None,
        isolation: str = "process",
        batch_size: int = limits.BATCH,
        batch_seconds: float = limits.BATCH_SECONDS,
        concurrency: int = 1,
        on_dead: str = "continue",
        lanes: int = limits.LANES_DEFAULT,
        headers: Mapping[str, str] | None = None,
        keyed: bool | None = None,
        memory_mb: int = limits.MEMORY_MB,
        batch: int | None = None,
    ) -> Callable[[F], F]:
        """Hand every event of a stream to a function, as this group.

        Handlers that share a group must agree on its settings; the first whose `types` match handles an event. A
        handler with a second parameter gets a `Context`, and its group is worked on by lanes (`keyed=False` opts out
        and forgoes state). `timeout_seconds` and `memory_mb` are enforced with `isolation="process"`.

        With `batch=500` the function is called with a list of up to 500 events and returns None or `{event_id: error}`.
        Effects go through `ctx.of(event)`. If it raises, the events come back in smaller and smaller pieces until the
        one that is to blame is called alone.
        """
        policy = Policy(
            start=start,
            retry=retry or Retry(),
            lease_seconds=lease_seconds,
            timeout_seconds=timeout_seconds,
            ordering=ordering,
            isolation=isolation,
            batch_size=batch_size,
            batch_seconds=batch_seconds,
            concurrency=concurrency,
            on_dead=on_dead,
            lanes=lanes,
            headers=dict(headers) if headers else None,
            keyed=keyed,
            memory_mb=memory_mb,
            batch=batch,
        )

        def declare(function: F) -> F:
            handler = handler_of(function, types)
            self._check_no_pipeline(stream, group)
            known = next((one for one in self.subscriptions if (one.stream, one.group) == (stream, group)), None)
            if known is None:
                self.subscriptions.append(Subscription(stream, group, policy, [handler]))
            else:
                known.join(policy, handler)
            return function

        return declare

    def pipeline(
        self,
        stream: str,
        *,
        group: str,
        sink: Sink,
        types: Sequence[str] | None = None,
        start: str | int | datetime = "beginning",
        retry: Retry | None = None,
        lease_seconds: float = limits.LEASE_SECONDS,
        headers: Mapping[str, str] | None = None,
        batch_size: int = limits.PIPELINE_BATCH,
    ) -> Callable[[F], F]:
        """Hand the events of a stream, batch by batch, to a function from DataFrame to DataFrame, as this group.

        Spark runs it, and its rows go into the `sink` (see `penstock.sinks`). It must be a function of each batch,
        whatever the batch's size: if a job fails, the batch is cut until the events that fail stand alone. An event
        with a row whose `_error` is not null fails as a whole; one without rows is done.
        """

        def declare(function: F) -> F:
            made = Pipeline(
                stream,
                group,
                function,
                sink,
                types=None if types is None else tuple(types),
                start=start,
                retry=retry or Retry(),
                lease_seconds=lease_seconds,
                headers=dict(headers) if headers else None,
                batch_size=batch_size,
            )
            self._check_no_pipeline(stream, group)
            if any((one.stream, one.group) == (stream, group) for one in self.subscriptions):
                raise PolicyConflict(f"{made.name} has a handler already: a group has handlers or one pipeline.")
            self.pipelines.append(made)
            return function

        return declare

    def _check_no_pipeline(self, stream: str, group: str) -> None:
        if any((one.stream, one.group) == (stream, group) for one in self.pipelines):
            raise PolicyConflict(f"{stream}/{group} has a pipeline already: a group has handlers or one pipeline.")

    def open(self) -> Log:
        """The app's log."""
        return open_log(self.url)

    def chosen(self, groups: Sequence[str] | None = None) -> list[Subscription]:
        """The subscriptions of these groups (default: all); `UnknownGroup` for one that nobody declared."""
        self._check_groups(groups)
        return [one for one in self.subscriptions if not groups or one.group in groups]

    def chosen_pipelines(self, groups: Sequence[str] | None = None) -> list[Pipeline]:
        """The pipelines of these groups (default: all)."""
        self._check_groups(groups)
        return [one for one in self.pipelines if not groups or one.group in groups]

    def _check_groups(self, groups: Sequence[str] | None) -> None:
        known = {one.group for one in self.subscriptions} | {one.group for one in self.pipelines}
        if not known:
            raise InvalidInput(f"The app {self.name!r} declares no handlers and no pipelines.")
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
    ) -> Outcome:
        """Work until Ctrl-C or SIGTERM, or, with `until_drained`, until nothing is left to do.

        On Spark, `spark` is your own session; without one the active one is used, else one is made for `master`
        (default: all cores of this machine). With several `processes` of the local engine each of them imports the app
        and works for all groups; one that dies is replaced.
        """
        if being_loaded():  # handlers' processes and those of a pool import the file, and would run it again and again
            raise AppNotFound('run() was called by importing the app. Put it under `if __name__ == "__main__":`.')
        if engine not in ("spark", "local"):
            raise InvalidInput(f'engine is "spark" or "local", not {engine!r}.')
        if engine == "local" and (master is not None or spark is not None):
            raise InvalidInput("master and spark belong to the Spark engine.")
        check_processes(processes)
        subscriptions, pipelines = self.chosen(groups), self.chosen_pipelines(groups)
        if engine == "spark":
            if processes > 1:
                raise InvalidInput("processes belongs to the local engine: Spark has slots.")
            from penstock.spark.run import run_spark  # Spark is loaded when it is wanted

            with self.open() as log:
                return run_spark(
                    log,
                    subscriptions,
                    pipelines,
                    name=self.name,
                    master=master,
                    spark=spark,
                    until_drained=until_drained,
                )
        check_local(pipelines)
        from penstock.engine.foreground import run_local  # with all that running needs
        from penstock.engine.local.pool import run_pool

        if processes > 1:
            self.open().close()  # what is wrong with the database is found here, and once
            return run_pool(
                reference_of(self, subscriptions),
                App,
                subscriptions,
                processes=processes,
                url=self.url,
                until_drained=until_drained,
                name=self.name,
            )
        with self.open() as log:
            return run_local(log, subscriptions, until_drained=until_drained, app=self.name)
