"""Which row a Python UDF was called for when it raised: a note on its exception, read from the error of the task.

Spark tells only that a task failed. In tasks that read once (see `read_once`), the rows of a UDF are the events of the
task's piece, in their order, unless some were filtered out before. So the number of the call points at the culprit, and
the search for it begins there. It is a hint: an event is blamed only if it fails alone.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any, Final

from penstock.spark.pipelines.read_once import is_once

Rows = tuple[int, int]  # from the first row on, up to the last, which is not one of them
_NOTE: Final = re.compile(r"\n?penstock: rows (\d+) to (\d+)$", re.MULTILINE)
_BATCHED, _ARROW_BATCHED, _PANDAS, _ARROW = 100, 101, 200, 250  # Spark's eval types of UDFs


def install() -> None:
    """Have UDFs of this process's tasks, and of those that are forked from it, note their rows."""
    from pyspark import worker

    module: Any = worker
    read = module.read_single_udf

    def read_noting(*arguments: Any, **named: Any) -> Any:
        found = read(*arguments, **named)
        kind = arguments[2] if len(arguments) > 2 else named.get("eval_type")
        if kind not in (_BATCHED, _ARROW_BATCHED, _PANDAS, _ARROW) or not is_once():
            return found
        place = 1 if kind == _BATCHED else 0
        noting = _by_batch if kind in (_PANDAS, _ARROW) else _by_row
        return (*found[:place], noting(found[place]), *found[place + 1 :])

    module.read_single_udf = read_noting


def rows_of(text: str) -> Rows | None:
    """Return the rows that the error of a task names."""
    found = _NOTE.search(text)
    return None if found is None else (int(found[1]), int(found[2]))


def without_rows(text: str) -> str:
    """Return the error without the note, which is not the user's."""
    return _NOTE.sub("", text)


def _by_row(function: Callable[..., Any]) -> Callable[..., Any]:
    calls = itertools.count()

    def call(*arguments: Any, **named: Any) -> Any:
        number = next(calls)
        try:
            return function(*arguments, **named)
        except Exception as error:
            error.add_note(f"penstock: rows {number} to {number + 1}")
            raise

    return call


def _by_batch(function: Callable[..., Any]) -> Callable[..., Any]:
    done = 0

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal done
        first = done
        done += len((*arguments, *named.values(), ())[0])
        try:
            return function(*arguments, **named)
        except Exception as error:
            error.add_note(f"penstock: rows {first} to {done}")
            raise

    return call
