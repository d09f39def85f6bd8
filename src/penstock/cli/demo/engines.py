"""Who runs the demo's app: Spark, which takes a while to start, or plain processes."""

from __future__ import annotations

import importlib.util
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from penstock.app import App
from penstock.engine.foreground import run_local
from penstock.engine.outcome import Outcome
from penstock.errors import EngineMissing
from penstock.log.log import Log


class Engine(Protocol):
    """Something that drains an app."""

    pipelines: bool  # whether it runs DataFrames, too

    def ready(self) -> None: ...
    def drain(self, log: Log, app: App) -> Outcome: ...
    def close(self) -> None: ...


class OnSpark:
    """A session of its own, which starts while other things happen; what it writes goes into a directory."""

    pipelines = True

    def __init__(self, directory: Path) -> None:
        from penstock.spark.java import find_java, wrapped

        if importlib.util.find_spec("pyspark") is None:
            raise EngineMissing  # what is missing is said now, not in the middle of the story
        self._java_home = os.environ.get("JAVA_HOME")
        os.environ["JAVA_HOME"] = str(wrapped(find_java() / "bin" / "java", directory / "java"))
        self._pool = ThreadPoolExecutor(1, "penstock-demo-spark")
        self._session: Future[Any] = self._pool.submit(_make_session, directory)

    def ready(self) -> None:
        """Return when Spark has started."""
        self._session.result()

    def drain(self, log: Log, app: App) -> Outcome:
        from penstock.spark.run import run_spark

        return run_spark(
            log,
            app.chosen(),
            app.chosen_pipelines(),
            name=app.name,
            spark=self._session.result(),
            until_drained=True,
        )

    def close(self) -> None:
        if self._session.exception() is None:
            self._session.result().stop()
        self._pool.shutdown()
        os.environ.pop("JAVA_HOME")
        if self._java_home is not None:
            os.environ["JAVA_HOME"] = self._java_home


def _make_session(directory: Path) -> Any:
    from penstock.spark.session import make_session

    config = {
        "spark.ui.enabled": "false",
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    return make_session(name="penstock-demo", config=config)


class OnThisMachine:
    """The local engine: handlers only."""

    pipelines = False

    def ready(self) -> None:
        """There is nothing to wait for."""

    def drain(self, log: Log, app: App) -> Outcome:
        return run_local(log, app.chosen(), until_drained=True)

    def close(self) -> None:
        """There is nothing to close."""
