"""What an app may declare, and what happens when a declaration differs from the stored group."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.declare.groups import declare
from penstock.declare.load import Reference, load_object, reference_to
from penstock.errors import HandlerUnreachable
from tests.support.children import handlers
from tests.support.declarations import subscription
from tests.support.raw_sql import raw


def test_a_declaration_creates_its_group(log: penstock.Log) -> None:
    retry = penstock.Retry(max_attempts=7)
    declare(log, subscription(handlers.plain, types=["order.*"], headers={"tenant": "eu"}, retry=retry), "me")
    (group,) = log.groups("orders")
    assert (group.retry, group.lanes, group.keyed, group.ordered) == (retry, 1, False, False)
    assert group.spans[-1].types == ("order.*",)
    declare(log, subscription(handlers.counting, group="keyed"), "me")
    keyed = next(one for one in log.groups("orders") if one.group_name == "keyed")
    assert (keyed.keyed, keyed.lanes) == (True, 8)


def test_changed_retry_settings_are_stored_with_an_audit_row(log: penstock.Log, log_url: str) -> None:
    declare(log, subscription(handlers.plain), "me")
    changed = subscription(handlers.plain, retry=penstock.Retry(max_attempts=9), lease_seconds=5, on_dead="halt")
    declare(log, changed, "the deploy")
    declare(log, changed, "the deploy")
    (group,) = log.groups("orders")
    assert (group.retry.max_attempts, group.lease_seconds, group.on_dead) == (9, 5, "halt")
    with raw(log_url) as sql:
        assert sql("select by, action from penstock.audit") == [("the deploy", "policy")]


@pytest.mark.parametrize(
    "other",
    [
        {"types": ["order.*"]},
        {"headers": {"tenant": "eu"}},
        {"ordering": "key"},
        {"keyed": True},
    ],
    ids=str,
)
def test_another_binding_or_order_is_refused(log: penstock.Log, other: dict[str, Any]) -> None:
    declare(log, subscription(handlers.plain), "me")
    before = log.groups("orders")
    with pytest.raises(penstock.BindingChanged, match=next(iter(other))):
        declare(log, subscription(handlers.plain, **other), "me")
    assert log.groups("orders") == before


def test_doubled_lanes_do_not_conflict_with_the_declaration(log: penstock.Log) -> None:
    declare(log, subscription(handlers.counting), "me")
    log.double_lanes("orders", "g")
    declare(log, subscription(handlers.counting), "me")
    assert log.groups("orders")[0].lanes == 16


def no_parameters() -> None: ...
def three(event: Any, ctx: Any, more: Any) -> None: ...
def keyword(event: Any, *, more: Any) -> None: ...
def generator(event: Any) -> Any:
    yield 1


async def async_generator(event: Any) -> Any:
    yield 1


def _name(function: Any) -> str:
    return getattr(function, "__name__", str(function))


@pytest.mark.parametrize("function", [no_parameters, three, keyword, generator, async_generator, "text"], ids=_name)
def test_a_function_that_is_no_handler_is_refused(function: Any) -> None:
    app = penstock.App("sqlite:///none.db")
    with pytest.raises(penstock.InvalidHandler):
        app.subscribe("orders", group="g")(function)
    assert app.subscriptions == []


def with_default(event: Any, verbose: bool = False) -> None: ...
def with_optional_context(event: Any, ctx: Any = None) -> None: ...


@pytest.mark.parametrize(("function", "wants"), [(with_default, False), (with_optional_context, True)])
def test_a_second_parameter_with_a_default_is_the_context_only_by_name(
    function: Callable[..., Any], wants: bool
) -> None:
    assert subscription(function).wants_context is wants


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("lease_seconds", 0),
        ("timeout_seconds", -1),
        ("batch_seconds", "2"),
        ("batch_size", 0),
        ("batch_size", 60_000),
        ("concurrency", 1.5),
        ("memory_mb", 0),
        ("isolation", "thread"),
        ("ordering", "value"),
        ("on_dead", "stop"),
        ("keyed", 1),
        ("lanes", 3),
        ("retry", 3),
    ],
)
def test_an_odd_setting_is_refused(option: str, value: Any) -> None:
    app = penstock.App("sqlite:///none.db")
    with pytest.raises(penstock.InvalidInput, match=option):
        app.subscribe("orders", group="g", **{option: value})(handlers.plain)


def test_handlers_of_one_group_must_agree() -> None:
    app = penstock.App("sqlite:///none.db")
    app.subscribe("orders", group="g", types=["a.*"])(handlers.plain)
    app.subscribe("orders", group="g", types=["b.*"])(handlers.counting)
    with pytest.raises(penstock.PolicyConflict, match="lease_seconds"):
        app.subscribe("orders", group="g", lease_seconds=5)(handlers.slow)
    (one,) = app.subscriptions
    assert one.types == ("a.*", "b.*") and one.keyed and len(one.handlers) == 2


def test_a_handler_that_cannot_be_imported_is_sent_as_code(log: penstock.Log) -> None:
    """For example a handler from a notebook; one that refers to this process is refused at the start."""
    factor, lock = 3, threading.Lock()

    def local(event: Any) -> int:
        return factor * int(event)

    def tied(event: Any) -> None:
        lock.acquire()

    assert reference_to(local).resolve()(2) == 6
    with pytest.raises(penstock.HandlerUnreachable, match="tied"):
        reference_to(tied)


def test_an_app_without_handlers_and_unknown_groups_are_refused(log_url: str) -> None:
    app = penstock.App(log_url, name="shop")
    with pytest.raises(penstock.InvalidInput, match="no handlers"):
        app.run("local")
    app.subscribe("orders", group="g")(handlers.plain)
    with pytest.raises(penstock.UnknownGroup, match="has g"):
        app.run("local", groups=["h"])
    with pytest.raises(penstock.InvalidInput, match="engine"):
        app.run("other")
    with pytest.raises(penstock.InvalidInput, match="Spark engine"):
        app.run("local", master="local[2]")
    with pytest.raises(penstock.InvalidInput, match="local engine"):
        app.run(processes=2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nowhere_at_all", "nowhere_at_all"),
        ("def (", "SyntaxError"),
        ("x = 1", "none"),
        ("import penstock\na = penstock.App(); b = penstock.App()", "2: a, b"),
        ("raise SystemExit(3)", "SystemExit"),
        ("from pyspark.sql import functions as f\n@f.udf('bigint')\ndef same(n): return n", "Spark session while"),
    ],
)
def test_an_app_that_cannot_be_loaded_is_refused(tmp_path: Any, text: str, words: str) -> None:
    (tmp_path / "shop.py").write_text(text, encoding="utf-8")
    with pytest.raises(penstock.AppNotFound, match=words):
        load_object(str(tmp_path / "shop.py"), penstock.App)


def test_an_app_is_found_by_file_by_name_and_by_module(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "two_apps.py").write_text(
        "import penstock\none = penstock.App(name='one')\ntwo = penstock.App(name='two')\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    assert load_object("two_apps.py:two", penstock.App).name == "two"
    assert load_object("two_apps:one", penstock.App).name == "one"
    for reference in ("", "missing.py", "two_apps:three", "no.such.module", "two_apps.py:three"):
        with pytest.raises(penstock.AppNotFound):
            load_object(reference, penstock.App)


@pytest.mark.shows("S17")
@pytest.mark.parametrize("module", ["__main__", "penstock_app_json_0123abcd"])
def test_the_file_of_an_app_is_found_by_its_name_where_its_path_does_not_exist(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an executor to which the file was sent."""
    assert Reference(module, "/nowhere/json.py", "dumps").resolve() is json.dumps
    with pytest.raises(HandlerUnreachable, match="There is no file /nowhere/no_such_shop"):
        Reference(module, "/nowhere/no_such_shop.py", "screen").resolve()
    (tmp_path / "shop_that_needs_more.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        Reference(module, "/nowhere/shop_that_needs_more.py", "screen").resolve()
