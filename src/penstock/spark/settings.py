"""Spark's settings: what the user has set, wherever that was, counts; we only fill gaps."""

from __future__ import annotations

import argparse
import os
import shlex
from importlib import resources
from pathlib import Path
from typing import Any, Final

QUIET: Final = f"-Dlog4j2.configurationFile=file:{resources.files('penstock.spark') / 'log4j2.properties'}"

# On any master, where nothing else is set.
DEFAULTS: Final = {
    "spark.scheduler.mode": "FAIR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.daemon.module": "penstock.spark.daemon",  # new workers start in milliseconds, not seconds
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.driver.extraJavaOptions": QUIET,
}
# Where all of Spark is on this machine.
LOCAL_DEFAULTS: Final = {"spark.driver.host": "127.0.0.1"}


_UNSET: Final = {"spark.master": "local[*]", "spark.app.name": "pyspark-shell"}  # what spark-submit makes of nothing
launched: dict[str, str] = {}  # the settings with which we started this process's JVM


def set_by_user() -> dict[str, str]:
    """Return the settings of spark-submit, of spark-defaults.conf and of PYSPARK_SUBMIT_ARGS."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or _has_jvm():
        ours = {*launched.items(), *_UNSET.items()}
        return dict(pair for pair in _of_jvm().items() if pair not in ours)
    return {**_of_file(_conf_folder() / "spark-defaults.conf"), **_of_arguments(os.environ.get("PYSPARK_SUBMIT_ARGS"))}


def _has_jvm() -> bool:
    from pyspark import SparkContext

    return SparkContext._jvm is not None


def _of_jvm() -> dict[str, str]:
    """Ask the JVM, which spark-submit has started and told everything."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    conf: Any = SparkConf(_jvm=SparkContext._jvm)
    return dict(conf.getAll())


def _conf_folder() -> Path:
    named = os.environ.get("SPARK_CONF_DIR")
    if named:
        return Path(named)
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home()) / "conf"


def _of_file(path: Path) -> dict[str, str]:
    """Read a properties file: `key value`, `key=value` or `key: value`, with # for comments."""
    if not path.is_file():
        return {}
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text and not text.startswith(("#", "!")):
            key, value = _pair(text)
            found[key] = value
    return found


def _pair(text: str) -> tuple[str, str]:
    for place, letter in enumerate(text):
        if letter in "=: \t":
            return text[:place], text[place:].lstrip("=: \t")
    return text, ""


def _of_arguments(text: str | None) -> dict[str, str]:
    """Parse what spark-submit would be called with."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--master")
    parser.add_argument("--conf", "-c", action="append", default=[])
    parser.add_argument("--properties-file")
    known, _ = parser.parse_known_args(shlex.split(text or ""))
    found = _of_file(Path(known.properties_file)) if known.properties_file else {}
    found |= dict(one.split("=", 1) for one in known.conf if "=" in one)
    return found | ({"spark.master": known.master} if known.master else {})
