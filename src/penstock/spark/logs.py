"""One open log per process and URL: Spark's Python workers live on from task to task."""

from __future__ import annotations

import atexit
import gc
import os
from typing import Any, Final

from penstock.errors import InvalidInput
from penstock.log.log import Log
from penstock.log.open import open_log
from penstock.spark.secrets import reveal

CONNECTIONS: Final = "spark.penstock.connections"  # to the database, of one Python worker
_DEFAULT: Final = 4
_VARIABLE: Final = "PENSTOCK_SPARK_CONNECTIONS"
_opened: dict[tuple[int, str], Log] = {}  # by pid: a forked process must not use its parent's connections


def log_at(url: str) -> Log:
    """Return the log of a URL (without its password, see `secrets`); opened on first use, and kept."""
    key = (os.getpid(), url)
    if key not in _opened:
        most = int(os.environ.get(_VARIABLE, _DEFAULT))
        _opened[key] = open_log(reveal(url), connections=most)
        gc.freeze()  # Spark's workers run the collector after every task: keep it from scanning modules
    return _opened[key]


def limit_connections(spark: Any) -> int:
    """Tell the session's Python workers how many connections each may have; returns that number."""
    said = spark.sparkContext.getConf().get(CONNECTIONS, str(_DEFAULT))
    if not said.isdecimal() or not 2 <= int(said) <= 1_000:
        raise InvalidInput(f"{CONNECTIONS} must be a whole number from 2 to 1,000, not {said!r}.")
    spark.sparkContext.environment[_VARIABLE] = said
    return int(said)


@atexit.register
def _close() -> None:
    for (process, _), log in _opened.items():
        if process == os.getpid():
            log.close()
