"""Kinds of errors: which errors share a fingerprint, and what a traceback shows."""

from __future__ import annotations

import uuid

import pytest

from penstock.core import fingerprint
from penstock.core.lease import Failure
from penstock.core.limits import TRACEBACK_BYTES


def look_up(order: dict[str, str], name: str) -> str:
    return order[name]


def screen(order: dict[str, str], name: str = "customer") -> str:
    return look_up(order, name)


def caught(call: object, *arguments: object) -> Failure:
    try:
        call(*arguments)  # type: ignore[operator]
    except BaseException as error:
        return fingerprint.of_exception(error)
    raise AssertionError("nothing was raised")


def fail(message: str) -> None:
    raise ValueError(message)


def fail_elsewhere(message: str) -> None:
    raise ValueError(message)


@pytest.mark.shows("K47")
def test_a_key_error_two_calls_deep_says_class_place_and_traceback() -> None:
    fingerprint._seen.clear()
    failure = caught(screen, {})
    assert (failure.code, failure.error_type, failure.message) == ("KeyError", "KeyError", "KeyError: 'customer'")
    assert failure.traceback is not None and failure.traceback.rstrip().endswith("KeyError: 'customer'")
    assert "in screen" in failure.traceback and "in look_up" in failure.traceback
    assert "return order[name]" in failure.traceback, "the source line is missing"


def test_values_that_differ_by_event_do_not_change_the_kind() -> None:
    one = caught(fail, f"order 17 of 'c-1' ({uuid.uuid4()}) took 3.5 s at 0x7f00aa")
    other = caught(fail, f"order 4,711 of 'c-2' ({uuid.uuid4()}) took 12 s at 0x7f00bb")
    assert one.fingerprint == other.fingerprint and one.message != other.message
    assert caught(screen, {}, "a").fingerprint == caught(screen, {}, "b").fingerprint


def test_class_place_code_and_words_change_the_kind() -> None:
    kinds = [
        caught(fail, "no stock"),
        caught(fail, "no such customer"),
        caught(fail_elsewhere, "no stock"),
        caught(int, "x"),
        fingerprint.of_text("timed_out", "no stock"),
        fingerprint.of_text("process_died", "no stock"),
    ]
    assert len({one.fingerprint for one in kinds}) == len(kinds)
    assert all(one.fingerprint and one.fingerprint.startswith(f"{fingerprint.VERSION}-") for one in kinds)


def test_tracebacks_are_made_for_the_first_of_a_kind_and_then_less_and_less_often() -> None:
    fingerprint._seen.clear()
    made = [number for number in range(1, 101) if caught(fail, "again").traceback is not None]
    assert made == [1, 2, 4, 8, 16, 32, 64]


def test_a_traceback_is_bounded_and_shows_causes() -> None:
    def deep(n: int) -> None:
        if n:
            deep(n - 1)
        raise RuntimeError("x" * 5_000)

    def both() -> None:
        try:
            deep(200)
        except RuntimeError as error:
            raise LookupError("after that\x00\ud800") from error

    fingerprint._seen.clear()
    failure = caught(both)
    assert failure.traceback is not None and len(failure.traceback.encode()) <= TRACEBACK_BYTES
    assert failure.traceback.rstrip().endswith("LookupError: after that\\0\\ud800")
    assert "which led to" in failure.traceback and "\x00" not in failure.traceback
    failure.message.encode()  # any database can store it


def test_an_exception_that_cannot_be_shown_is_a_failure_like_any_other() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise OSError

    def speak() -> None:
        raise Mute

    failure = caught(speak)
    assert failure.message == "an exception whose text cannot be made"
    assert failure.error_type is not None and failure.error_type.endswith("Mute")
