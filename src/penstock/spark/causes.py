"""Find the root cause of a Spark job's failure: one line, not a page of stack traces."""

from __future__ import annotations

import re
from typing import Any, Final

from penstock import errors
from penstock.core import codec
from penstock.core.fingerprint import type_name
from penstock.core.lease import Failure
from penstock.spark.failing_rows import without_rows

# Error codes of failed tasks that blame no event.
AWAY: Final = frozenset(
    ["Unavailable", *(code for code, kind in errors.all_errors().items() if issubclass(kind, errors.AWAY))]
)
_TRACEBACK: Final = "Traceback (most recent call last):"
_PYTHON_ERROR: Final = re.compile(r"^((?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*))(?:: ?(.*))?$", re.DOTALL)
_OWN_CODE: Final = re.compile(r"\[([a-z_]+)\] ")
_JAVA_CLASS: Final = re.compile(r"^(?:Caused by: )?(?:[a-z_]\w*\.)+([A-Z]\w*)(?:: )?")
_CONDITION: Final = re.compile(r"^\[([A-Z][A-Z0-9_.]+)\] ?")
_MOST_RECENT: Final = re.compile(r"most recent failure: .*?\(executor [^)]*\): ", re.DOTALL)
_WRITE_FAILED: Final = "[TASK_WRITE_FAILED]"  # a task of Spark's own file writer, whatever the cause
OF_FILES: Final = ("java.io.", "java.net.", "java.nio.", "org.apache.hadoop.")  # Java's errors of file systems
_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5}.*\Z", re.DOTALL)


def failure_of(error: Any) -> Failure:
    """Make a failure from a driver's exception or the error text of a failed task."""
    text = without_rows(str(error))
    if isinstance(error, BaseException) and not type(error).__module__.startswith(("pyspark.", "py4j.")):
        kind = type_name(type(error))
        return Failure(codec.error_code(error), codec.error_text(f"{type(error).__name__}: {error}"), error_type=kind)
    if _TRACEBACK in text:
        return _python(text)
    if "Python worker exited unexpectedly" in text or "ExecutorLostFailure" in text:
        return Failure("process_died", "process_died: the Python worker was killed, crashed or ran out of memory.")
    return _java(text)


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text, at most 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".:")[:300] if lines else type(error).__name__


def _python(text: str) -> Failure:
    """Parse the error at the end of the last traceback."""
    lines = _without_java_stack(text.rpartition(_TRACEBACK)[2]).splitlines()
    place = next((n for n, line in enumerate(lines) if line and not line[0].isspace()), None)
    error = "\n".join(lines[place:]) if place is not None else ""
    found = _PYTHON_ERROR.match(_STATE.sub("", error).strip())
    if found is None:
        return _java(text)
    own = _OWN_CODE.match(found[3] or "") if found[1].startswith("penstock.") else None
    code, kind = own[1] if own else found[2][:128], found[1][:256]
    return Failure(code, codec.error_text(f"{found[2]}: {(found[3] or '').strip()}"), error_type=kind)


def _java(text: str) -> Failure:
    if _WRITE_FAILED in text and "\nCaused by: " in text:
        text = text.rpartition("\nCaused by: ")[2]
        if text.startswith(OF_FILES):
            return Failure("Unavailable", codec.error_text(f"Unavailable: {_without_java_stack(text).strip()}"))
    recent = _MOST_RECENT.search(text)
    error = _without_java_stack(text[recent.end() :] if recent else text).strip()
    kind = _JAVA_CLASS.match(error)
    message = error[kind.end() :] if kind else error
    condition = _CONDITION.match(message)
    code = condition[1] if condition else kind[1] if kind else "error"
    words = _STATE.sub("", message[condition.end() :] if condition else message).strip()
    return Failure(code[:128], codec.error_text(f"{code}: {words}"))


def _without_java_stack(text: str) -> str:
    return text.partition("\n\tat ")[0]
