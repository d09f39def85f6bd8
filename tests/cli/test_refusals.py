"""Bad input gives one coded error, the right exit code, no trace, and nothing is written."""

import json
import socket
import uuid
from pathlib import Path

import pytest

import penstock as library
from penstock.cli import session
from tests.cli.conftest import Command
from tests.cli.test_cli import counts, fill, work

LINE = json.dumps({"payload": {"id": 1}, "type": "order.created"})
NOBODY = uuid.UUID(int=7)
GOOD = ("--type", "order.created", "--payload", "{}")

BAD_APPENDS = {
    "wrong name": (("or ders", *GOOD), "invalid_name"),
    "missing type": (("orders", "--payload", "{}"), "missing_field"),
    "missing payload": (("orders", "--type", "order.created"), "missing_field"),
    "null payload": (("orders", "--type", "order.created", "--payload", "null"), "missing_field"),
    "unparsable JSON": (("orders", "--type", "order.created", "--payload", "{id: 7}"), "invalid_payload"),
    "not a number": (("orders", "--type", "order.created", "--payload", "NaN"), "invalid_payload"),
    "a number too large": (("orders", "--type", "order.created", "--payload", "9" * 40), "invalid_payload"),
    "no such file": (("orders", "--type", "order.created", "--payload", "@/no/such/file"), "invalid_input"),
    "naive datetime": (("orders", *GOOD, "--at", "2026-01-01T00:00"), "naive_datetime"),
    "no datetime": (("orders", *GOOD, "--at", "tomorrow"), "invalid_input"),
    "far away": (("orders", *GOOD, "--at", "+99999999999d"), "invalid_input"),
    "odd header": (("orders", *GOOD, "--header", "tenant"), "invalid_input"),
    "odd id": (("orders", *GOOD, "--id", "order-7"), "invalid_input"),
    "long key": (("orders", *GOOD, "--key", "k" * 513), "too_large"),
    "unknown option": (("orders", *GOOD, "--colour", "red"), "usage"),
    "no stream": (GOOD, "usage"),
    "both ways": (("orders", "--jsonl", "-", "--payload", "{}"), "usage"),
}


@pytest.mark.parametrize(("arguments", "code"), BAD_APPENDS.values(), ids=BAD_APPENDS.keys())
def test_a_bad_append_writes_nothing(command: Command, tmp_path: Path, arguments: tuple[str, ...], code: str) -> None:
    refused = command("append", *arguments, "--json", "--url", f"sqlite:///{tmp_path / 'log.db'}")
    assert (refused.code, refused.error) == (2, code)
    assert set(refused.json["error"]) == {"code", "message", "hint"}
    assert refused.err == ""
    assert list(tmp_path.iterdir()) == []


def test_an_oversized_payload_writes_nothing(command: Command, tmp_path: Path) -> None:
    big = tmp_path / "big.json"
    big.write_text(json.dumps("x" * 1024 * 1024))
    refused = command(
        "append", "s", "--type", "t", "--payload", f"@{big}", "--json", "--url", f"sqlite:///{tmp_path}/x.db"
    )
    assert (refused.code, refused.error) == (2, "too_large")
    assert list(tmp_path.iterdir()) == [big]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{", "invalid_payload"),
        ("[]", "invalid_input"),
        (json.dumps({"payload": 1}), "missing_field"),
        (json.dumps({"type": "t"}), "missing_field"),
        (json.dumps({"payload": 1, "type": "a b"}), "invalid_name"),
        (json.dumps({"payload": 1, "type": "t", "colour": "red"}), "invalid_input"),
        (json.dumps({"payload": 1, "type": "t", "available_at": "2026-01-01T00:00"}), "naive_datetime"),
        (json.dumps({"payload": "x" * 1024 * 1024, "type": "t"}), "too_large"),
        (json.dumps({"payload": 1, "type": "t", "event_id": 7}), "invalid_input"),
    ],
)
@pytest.mark.empty_place
def test_a_bad_line_refuses_the_file(penstock: Command, line: str, code: str) -> None:
    penstock("init")
    refused = penstock("append", "orders", "--jsonl", "-", stdin="\n".join([LINE, "", line, LINE]))
    assert (refused.code, refused.error) == (2, code)
    assert "Line 3" in refused.json["error"]["message"]
    assert penstock("streams").json == {"streams": []}


@pytest.mark.parametrize(
    ("arguments", "exit_code", "code"),
    [
        (("dead", "orders", "nobody"), 1, "unknown_group"),
        (("events", "orders", "--group", "nobody"), 1, "unknown_group"),
        (("redrive", "orders", "nobody", "--all", "--yes"), 1, "unknown_group"),
        (("group", "pause", "orders", "nobody"), 1, "unknown_group"),
        (("group", "delete", "orders", "nobody", "--yes"), 1, "unknown_group"),
        (("show", "orders", 99), 1, "unknown_event"),
        (("show", "orders", NOBODY), 1, "unknown_event"),
        (("show", "orders", "9" * 19), 2, "invalid_input"),
        (("show", "orders", "order-7"), 2, "invalid_input"),
        (("kill", "orders", "fraud", "--id", NOBODY, "--yes"), 1, "unknown_event"),
        (("kill", "orders", "fraud", "--yes"), 2, "missing_field"),
        (("redrive", "orders", "fraud", "--yes"), 2, "filter_needed"),
        (("redrive", "orders", "fraud", "--all", "--type", "t", "--yes"), 2, "usage"),
        (("replay", "orders", "fraud", "--since", "2026-01-01", "--yes"), 2, "naive_datetime"),
        (("events", "orders", "--state", "DEAD"), 2, "usage"),
        (("events", "orders", "--group", "fraud", "--state", "LOST"), 2, "invalid_input"),
        (("events", "orders", "--limit", 0), 2, "usage"),
        (("events", "or ders"), 2, "invalid_name"),
        (("group", "create", "orders", "g", "--start", "middle"), 2, "invalid_input"),
        (("group", "create", "orders", "g", "--types", "a..b"), 2, "invalid_pattern"),
        (("group", "create", "orders", "g", "--lanes", 3, "--keyed"), 2, "invalid_input"),
        (("group", "create", "orders", "g", "--max-attempts", 0), 2, "invalid_input"),
        (("group", "create", "orders", "g", "--ordering", "time"), 2, "invalid_input"),
        (("group", "rewind", "orders", "fraud", "--to", "0", "--state", "burn", "--yes"), 2, "invalid_input"),
        (("reschedule", "orders", "fraud", "--id", NOBODY, "--at", "2026-01-01T00:00"), 2, "naive_datetime"),
    ],
    ids=lambda value: " ".join(map(str, value))[:40] if isinstance(value, tuple) else None,
)
def test_a_refusal_changes_nothing(
    penstock: Command, log_url: str, arguments: tuple[object, ...], exit_code: int, code: str
) -> None:
    fill(log_url)
    before = penstock("groups").json, counts(penstock)
    refused = penstock(*arguments)
    assert (refused.code, refused.error) == (exit_code, code)
    assert (penstock("groups").json, counts(penstock)) == before


@pytest.mark.parametrize(
    "arguments",
    [(), ("--json",), ("frobnicate",), ("frobnicate", "--json"), ("group", "frobnicate"), ("stats", "extra")],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2(command: Command, arguments: tuple[str, ...]) -> None:
    refused = command(*arguments)
    assert refused.code == 2
    if "--json" in arguments:
        assert refused.error == "usage"


@pytest.mark.parametrize("url", ["mysql://root:secret@localhost/x", "nonsense", "postgresql://localhost/x?schema=A-B"])
def test_a_bad_url(command: Command, url: str) -> None:
    refused = command("streams", "--json", "--url", url)
    assert (refused.code, refused.error) == (2, "invalid_url")
    assert "secret" not in refused.out


def test_a_database_that_is_down(command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    url = f"postgresql://someone:secret@127.0.0.1:{port}/x"
    for arguments in (("append", "orders", *GOOD), ("stats",), ("init",), ("doctor",)):
        refused = command(*arguments, "--json", "--url", url)
        assert (refused.code, refused.error) == (1, "store_unavailable")
        assert "secret" not in refused.out


def test_looking_creates_no_file(command: Command, tmp_path: Path) -> None:
    for arguments in (("stats",), ("streams",), ("doctor",), ("reap",), ("redrive", "s", "g", "--all", "--yes")):
        refused = command(*arguments, "--json", "--url", f"sqlite:///{tmp_path / 'log.db'}")
        assert (refused.code, refused.error) == (1, "store_unavailable")
        assert "penstock init" in refused.json["error"]["message"]
    assert list(tmp_path.iterdir()) == []


def test_looking_creates_no_schema(command: Command, postgres_url: str) -> None:
    assert command("stats", "--json", "--url", postgres_url).error == "schema_missing"
    assert command("stats", "--json", "--url", postgres_url).error == "schema_missing"


def test_errors_for_people(command: Command, tmp_path: Path) -> None:
    refused = command("stats", "--url", f"sqlite:///{tmp_path / 'log.db'}")
    assert refused.out == ""
    assert "error [store_unavailable] There is no log at" in refused.err
    assert "Traceback" not in refused.err


def test_the_unexpected_is_one_line_unless_debugging(
    command: Command, log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log_url)

    def broken(self: library.Log) -> None:
        raise KeyError("oh")

    monkeypatch.setattr(library.Log, "stats", broken)
    quiet = command("stats", "--url", log_url)
    assert quiet.code == 1
    assert quiet.err.splitlines()[0] == "error [unexpected] KeyError: 'oh'"
    assert "Traceback" not in quiet.err
    assert "Traceback" in command("stats", "--url", log_url, "--debug").err
    assert command("stats", "--url", log_url, "--json").error == "unexpected"


# --- confirmations --------------------------------------------------------------------------------------------------


DESTRUCTIVE = [
    ("redrive", "orders", "fraud", "--all"),
    ("replay", "orders", "fraud", "--all"),
    ("kill", "orders", "fraud", "--id", "ID"),
    ("skip", "orders", "fraud", "c-0"),
    ("group", "rewind", "orders", "fraud", "--to", "beginning"),
    ("group", "delete", "orders", "fraud"),
]


@pytest.mark.parametrize("arguments", DESTRUCTIVE, ids=" ".join)
def test_destruction_is_confirmed(penstock: Command, log_url: str, arguments: tuple[str, ...]) -> None:
    ids = fill(log_url)
    work(log_url, dead=ids[:1])
    with library.open(log_url) as log:
        waiting = str(log.append("orders", {}, type="order.created").event_id)
    given = tuple(one.replace("ID", waiting) for one in arguments)
    before = penstock("groups").json, counts(penstock)

    unasked = penstock(*given)
    assert (unasked.code, unasked.error) == (2, "confirmation_needed")
    refused = penstock(*given, stdin="n\n", terminal=True)
    assert (refused.code, refused.error) == (1, "aborted")
    assert "?" in refused.err
    hung_up = penstock(*given, terminal=True)
    assert (hung_up.code, hung_up.error) == (1, "aborted")
    assert (penstock("groups").json, counts(penstock)) == before

    if given[:2] != ("group", "delete"):
        assert penstock(*given, "--dry-run").json["dry_run"] is True
        assert counts(penstock) == before[1]
    assert penstock(*given, stdin="y\n", terminal=True).code == 0


def test_a_password_is_never_shown() -> None:
    assert session.without_password("postgresql://me:secret@host/x") == "postgresql://me:***@host/x"
    assert session.without_password("sqlite:///x.db") == "sqlite:///x.db"


def test_arguments_that_are_no_text(command: Command) -> None:
    refused = command("explain", "\udcff", "--json")
    assert (refused.code, refused.error) == (2, "unknown_code")
