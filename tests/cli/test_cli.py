"""Every command once, on both stores: its document, its exit code, and what it changed."""

import json
import os
import re
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock as library
from tests.cli.conftest import Command

SPECIFIED = """
append dead demo doctor events explain group groups init
kill reap redrive replay reschedule show skip stats streams version
"""


def fill(url: str, count: int = 6) -> list[str]:
    """Orders of two customers and the group `fraud`; returns their ids."""
    with library.open(url) as log:
        events = [{"payload": {"n": n}, "type": "order.created", "ordering_key": f"c-{n % 2}"} for n in range(count)]
        ids = [str(one) for one in log.append_many("orders", events).event_ids]
        log.create_group("orders", "fraud", retry=library.Retry(max_attempts=1))
        return ids


def work(url: str, group: str = "fraud", dead: list[str] | None = None) -> None:
    """Settle everything that is due."""
    with library.open(url) as log:
        while lease := log.claim("orders", group, limit=100, claimed_by="w-1"):
            named = {str(event.event_id) for event in lease.events} & set(dead or [])
            lease.settle(dead={one: "boom" for one in named})


def counts(command: Command, group: str = "fraud") -> dict[str, int]:
    found = next(one for one in command("stats").json["groups"] if one["group"] == group)
    return {state: found[state] for state in ("pending", "claimed", "published", "dead")}


# --- getting started -----------------------------------------------------------------------------------------------


@pytest.mark.empty_place
def test_init_creates_the_schema_once(penstock: Command) -> None:
    first = penstock("init")
    assert first.code == 0
    assert first.json["migrations"]
    assert penstock("init").json["migrations"] == []


def test_init_prints_the_schema_without_a_database(command: Command) -> None:
    printed = command("init", "--sql")
    assert printed.code == 0
    assert "create table if not exists penstock.events" in printed.out
    other = command("init", "--sql", "--json", "--url", "postgresql://nobody@nowhere/x?schema=other").json
    assert "create table if not exists other.events" in other["sql"]


def test_every_command_has_help_with_an_example(command: Command) -> None:
    listed = [name for name in SPECIFIED.split() if name != "group"]
    inside = ["create", "set", "pause", "resume", "rewind", "delete", "bind"]
    for path in [*([one] for one in listed), *(["group", one] for one in inside), ["group"], []]:
        shown = command(*path, "--help")
        assert shown.code == 0, path
        assert "Example: penstock" in shown.out, path
        assert not re.search(r"<\w+|\{\w+\}|\[\[|x<=|>=", shown.out), path
        for option in ("--url URL", "--json", "--quiet", "--log-format text|json", "--debug", "--help"):
            assert option in shown.out, path
    assert all(f" {name} " in command("--help").out for name in SPECIFIED.split())


def test_without_a_command_the_help_is_shown(command: Command) -> None:
    assert command().code == 2
    assert "Usage: penstock" in command().out
    assert command("--json").error == "usage"


def test_explain_is_offline(command: Command) -> None:
    found = command("explain", "lease_lost", "--json", "--url", "postgresql://nobody@127.0.0.1:1/x")
    assert found.code == 0
    assert found.json["error"] == "LeaseLost"
    assert found.json["message"] and found.json["hint"]
    assert command("explain", "LeaseLost", "--json").json["code"] == "lease_lost"
    codes = {one["code"] for one in command("explain", "--json").json["errors"]}
    assert {"lease_lost", "usage", "confirmation_needed"} <= codes


def test_explain_of_an_unknown_code_names_near_ones(command: Command) -> None:
    refused = command("explain", "lease_los")
    assert refused.code == 2
    assert refused.out == ""
    assert "lease_lost" in refused.err


def test_version(command: Command) -> None:
    assert command("version", "--json").json["penstock"]
    assert "sqlite" in command("version").out


def test_version_as_an_option(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown = command("--version")
    assert shown.code == 0
    for name in ("penstock", "python", "sqlite", "pyspark", "java"):
        assert re.search(rf"^{name} +\S+", shown.out, re.MULTILINE), shown.out
    assert command("--version", "--json").json == command("version", "--json").json
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert re.search(r"^java +not found", command("--version").out, re.MULTILINE)
    assert command("--version", "--json").json["java"] is None


# --- writing -------------------------------------------------------------------------------------------------------


@pytest.mark.empty_place
def test_append_one(penstock: Command) -> None:
    key = uuid.uuid4()
    given = ("--type", "order.created", "--payload", '{"id": 7}', "--key", "c-1", "--header", "tenant=eu=1")
    first = penstock("append", "orders", *given, "--id", key, "--at", "+1h")
    assert first.code == 0
    assert first.json == {"stream": "orders", "offset": 1, "event_id": str(key), "duplicate": False}
    assert penstock("append", "orders", *given, "--id", key, "--at", "+1h").json["duplicate"] is True
    (event,) = penstock("events", "orders").json["events"]
    assert event["payload"] == {"id": 7}
    assert event["headers"] == {"tenant": "eu=1"}
    assert event["ordering_key"] == "c-1"
    assert event["available_at"] > event["created_at"]


@pytest.mark.empty_place
def test_append_from_a_file_and_from_standard_input(penstock: Command, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"from": "file"}')
    (tmp_path / "p.bin").write_bytes(b"\x00\xff")
    assert penstock("append", "s", "--type", "t", "--payload", f"@{tmp_path / 'p.json'}").code == 0
    assert penstock("append", "s", "--type", "t", "--payload", "-", stdin="[1, 2]").code == 0
    binary = ("--payload", f"@{tmp_path / 'p.bin'}", "--content-type", "application/x-bytes")
    assert penstock("append", "s", "--type", "t", *binary).code == 0
    found = penstock("events", "s").json["events"]
    assert [one.get("payload") for one in found] == [{"from": "file"}, [1, 2], None]
    assert found[2]["payload_base64"] == "AP8="


@pytest.mark.empty_place
def test_append_many(penstock: Command, tmp_path: Path) -> None:
    lines = [{"payload": {"n": n}, "ordering_key": "k", "headers": {"h": "1"}} for n in range(25)]
    lines[3] |= {"type": "order.paid", "available_at": "2026-01-01T00:00:00Z", "event_id": str(uuid.uuid4())}
    file = tmp_path / "events.jsonl"
    file.write_text("\n\n".join(map(json.dumps, lines)))
    done = penstock("append", "orders", "--jsonl", file, "--type", "order.created")
    assert done.json == {"stream": "orders", "appended": 25, "duplicates": 0}
    again = penstock("append", "orders", "--jsonl", "-", stdin=json.dumps(lines[3]))
    assert again.json == {"stream": "orders", "appended": 0, "duplicates": 1}
    found = penstock("events", "orders").json["events"]
    assert [one["payload"]["n"] for one in found] == list(range(25))
    assert found[3]["event_type"] == "order.paid"


@pytest.mark.empty_place
def test_append_many_takes_several_transactions(
    penstock: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.jsonl.BATCH", 10)
    file = tmp_path / "events.jsonl"
    line = json.dumps({"payload": {}, "type": "t"})
    file.write_text("\n".join([line] * 35))
    assert penstock("append", "orders", "--jsonl", file).json["appended"] == 35
    clash = json.dumps(
        {"payload": {"other": 1}, "type": "t", "event_id": penstock("show", "orders", 1).json["event"]["event_id"]}
    )
    file.write_text("\n".join([line] * 10 + [clash]))
    refused = penstock("append", "orders", "--jsonl", file)
    assert (refused.code, refused.error) == (1, "duplicate_mismatch")
    assert "10 events before line 11 are stored" in refused.json["error"]["message"]


# --- looking -------------------------------------------------------------------------------------------------------


def test_streams_and_groups(penstock: Command, log_url: str) -> None:
    fill(log_url)
    assert penstock("streams").json == {"streams": [{"stream": "orders", "events": 6, "groups": 1}]}
    (group,) = penstock("groups").json["groups"]
    assert (group["stream"], group["group"], group["retry"]["max_attempts"]) == ("orders", "fraud", 1)
    assert penstock("groups", "elsewhere").json == {"groups": []}


def test_events_page_by_page(penstock: Command, log_url: str) -> None:
    fill(log_url)
    first = penstock("events", "orders", "--limit", 4).json
    rest = penstock("events", "orders", "--limit", 4, "--after", first["next_after"]).json
    assert [one["payload"]["n"] for one in first["events"] + rest["events"]] == list(range(6))
    assert rest["next_after"] is None


def test_events_by_type_and_time(penstock: Command, log_url: str) -> None:
    fill(log_url)
    assert penstock("append", "orders", "--type", "order.paid", "--payload", "1").code == 0
    for more in ((), ("--group", "fraud")):

        def found(*options: str, more: tuple[str, ...] = more) -> int:
            return len(penstock("events", "orders", *more, *options).json["events"])

        assert found("--type", "order.paid") == 1
        assert found("--since", "-1h") == 7
        assert found("--since", "+1h") == 0
        assert found("--until", "-1h") == 0
        assert found("--until", "+1h", "--type", "order.created") == 6


def test_events_of_a_group(penstock: Command, log_url: str) -> None:
    ids = fill(log_url)
    work(log_url, dead=ids[:1])
    (dead,) = penstock("events", "orders", "--group", "fraud", "--state", "dead").json["events"]
    assert (dead["event_id"], dead["state"], dead["last_error"]) == (ids[0], "DEAD", "boom")
    assert len(penstock("events", "orders", "--group", "fraud", "--error", "boom").json["events"]) == 1
    assert len(penstock("events", "orders", "--group", "fraud", "--state", "PUBLISHED").json["events"]) == 5


def test_show(penstock: Command, log_url: str, command: Command) -> None:
    ids = fill(log_url)
    work(log_url, dead=ids[:1])
    by_id, by_offset = penstock("show", "orders", ids[0]), penstock("show", "orders", 1)
    assert by_id.json == by_offset.json
    assert by_id.json["event"]["payload"] == {"n": 0}
    (delivery,) = by_id.json["deliveries"]
    assert (delivery["group"], delivery["state"]) == ("fraud", "DEAD")
    assert delivery["history"][-1]["error"] == "boom"
    shown = command("show", "orders", 1, "--url", log_url).out
    assert ids[0] in shown and "boom" in shown


def test_show_leaves_out_who_where_nobody_is_named(command: Command, log_url: str) -> None:
    fill(log_url)
    with library.open(log_url) as log:
        log.append("orders", {}, type="t", available_at=datetime.now(UTC) + timedelta(hours=1))
        log.kill("orders", "fraud", event_ids=[log.event("orders", 7).event_id], by="ada")
    waiting = command("show", "orders", 1, "--url", log_url).out
    assert not re.search(r"\bby\b", waiting), waiting
    assert re.search(r"\bby\b", command("show", "orders", 7, "--url", log_url).out)


def test_dead_is_newest_first(penstock: Command, log_url: str) -> None:
    ids = fill(log_url)
    work(log_url, dead=ids[:2])
    found = penstock("dead", "orders", "fraud").json["dead"]
    assert [one["event_id"] for one in found] == [ids[1], ids[0]]
    assert len(penstock("dead", "orders", "fraud", "--limit", 1).json["dead"]) == 1


def test_stats(penstock: Command, log_url: str) -> None:
    ids = fill(log_url)
    assert counts(penstock) == {"pending": 6, "claimed": 0, "published": 0, "dead": 0}
    work(log_url, dead=ids[:1])
    assert counts(penstock) == {"pending": 0, "claimed": 0, "published": 5, "dead": 1}


def test_tables_for_people(command: Command, log_url: str) -> None:
    ids = fill(log_url)
    work(log_url, dead=ids[:1])
    with library.open(log_url) as log:
        log.append("orders", {"evil": "\x1b[31m[bold]"}, type="order.created")
    for arguments in (
        ("streams",),
        ("groups",),
        ("stats",),
        ("events", "orders"),
        ("events", "orders", "--group", "fraud"),
        ("dead", "orders", "fraud"),
        ("show", "orders", "7"),
        ("doctor",),
        ("reap",),
    ):
        shown = command(*arguments, "--url", log_url)
        assert shown.code in (0, 1), shown
        assert shown.out.strip() and "\x1b" not in shown.out, arguments
    assert "[bold]" in command("show", "orders", 7, "--url", log_url).out


def test_the_url_may_come_first_last_or_from_the_environment(
    command: Command, log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log_url)
    wanted = command("streams", "--url", log_url, "--json").json
    assert command("--json", "--url", log_url, "streams").json == wanted
    assert command("group", "--json", "--url", log_url, "pause", "orders", "fraud").json["paused"]
    monkeypatch.setenv("PENSTOCK_URL", log_url)
    assert command("streams", "--json").json == wanted
    assert command("--url", "sqlite:////nowhere/at/all.db", "streams", "--json").error == "store_unavailable"


# --- groups --------------------------------------------------------------------------------------------------------


def test_group_create(penstock: Command, log_url: str) -> None:
    fill(log_url)
    options: tuple[Any, ...] = ("--start", "end", "--types", "order.*", "--types", "a,b", "--header", "tenant=eu")
    options += ("--ordering", "key", "--lanes", 4, "--on-dead", "halt", "--lease-seconds", 5, "--max-attempts", 7)
    options += ("--base-seconds", 1, "--factor", 3, "--cap-seconds", 9, "--jitter", 0, "--max-age-seconds", 60)
    made = penstock("group", "create", "orders", "ledger", *options)
    assert made.code == 0
    document = made.json
    assert (document["ordering"], document["lanes"], document["on_dead"]) == ("key", 4, "halt")
    assert document["types"] == ["order.*", "a", "b"] and document["headers"] == {"tenant": "eu"}
    assert document["retry"] == {
        "max_attempts": 7,
        "base_seconds": 1.0,
        "factor": 3.0,
        "cap_seconds": 9.0,
        "jitter": 0.0,
        "max_age_seconds": 60.0,
    }
    assert penstock("group", "create", "orders", "ledger", *options).json == document
    assert penstock("group", "create", "orders", "ledger", "--keyed").error == "group_exists"
    for start in ("3", "-1h", "2026-01-01T00:00+01:00"):
        assert penstock("group", "create", "orders", f"g{len(start)}", "--start", start).code == 0


def test_group_pause_and_resume(penstock: Command, log_url: str) -> None:
    fill(log_url)
    assert penstock("group", "pause", "orders", "fraud", "--reason", "deploy").json["paused"] is True
    assert penstock("groups").json["groups"][0]["pause_reason"] == "deploy"
    assert penstock("group", "resume", "orders", "fraud").json["paused"] is False
    assert penstock("groups").json["groups"][0]["paused"] is False


def test_group_bind(penstock: Command, log_url: str) -> None:
    fill(log_url)
    assert penstock("group", "bind", "orders", "fraud").error == "usage"
    assert penstock("group", "bind", "orders", "fraud", "--types", "order.paid").json["from_offset"] == 6
    assert penstock("groups").json["groups"][0]["types"] == ["order.paid"]
    assert penstock("group", "bind", "orders", "fraud", "--everything").json["types"] is None


def test_group_rewind(penstock: Command, log_url: str) -> None:
    fill(log_url)
    work(log_url)
    assert penstock("group", "rewind", "orders", "fraud", "--to", "2", "--dry-run").json["count"] == 4
    assert counts(penstock)["published"] == 6
    done = penstock("group", "rewind", "orders", "fraud", "--to", "beginning", "--state", "reset", "--yes").json
    assert (done["count"], done["dry_run"], done["state"]) == (6, False, "reset")
    assert counts(penstock)["pending"] == 6


def test_group_set_changes_what_is_given_and_nothing_else(penstock: Command, log_url: str) -> None:
    fill(log_url)
    options: tuple[Any, ...] = ("--ordering", "key", "--lanes", 4, "--max-attempts", 7, "--factor", 3, "--jitter", 0)
    before = penstock("group", "create", "orders", "ledger", *options, "--max-age-seconds", 60).json
    after = penstock("group", "set", "orders", "ledger", "--base-seconds", 9, "--by", "ada")
    assert after.code == 0
    assert after.json == {**before, "retry": {**before["retry"], "base_seconds": 9.0}}
    done = penstock("group", "set", "orders", "ledger", "--lanes", 8, "--on-dead", "halt", "--lease-seconds", 5).json
    assert (done["lanes"], done["on_dead"], done["lease_seconds"]) == (8, "halt", 5.0)
    assert done["retry"] == after.json["retry"]
    assert penstock("groups", "orders").json["groups"][-1] == done


def test_group_set_refuses_what_the_log_refuses(penstock: Command, log_url: str) -> None:
    fill(log_url)
    penstock("group", "create", "orders", "ledger", "--ordering", "key", "--lanes", 4)
    for options, code, error in (
        ((), 2, "usage"),
        (("--lanes", 16), 2, "invalid_input"),
        (("--lanes", 2), 2, "invalid_input"),
        (("--max-attempts", 0), 2, "invalid_input"),
        (("--jitter", 2), 2, "invalid_input"),
        (("--on-dead", "cry"), 2, "invalid_input"),
        (("--lease-seconds", -1), 2, "invalid_input"),
    ):
        refused = penstock("group", "set", "orders", "ledger", *options)
        assert (refused.code, refused.error) == (code, error), options
    unknown = penstock("group", "set", "orders", "ledgre", "--factor", 2)
    assert (unknown.code, unknown.error) == (1, "unknown_group")
    assert "Did you mean the group 'ledger'?" in unknown.json["error"]["hint"]


def test_group_delete(penstock: Command, log_url: str) -> None:
    fill(log_url)
    assert penstock("group", "delete", "orders", "fraud", "--yes").json["deleted"] is True
    assert penstock("groups").json == {"groups": []}


# --- operating -----------------------------------------------------------------------------------------------------


def test_redrive(penstock: Command, log_url: str) -> None:
    ids = fill(log_url)
    work(log_url, dead=ids[:4])
    moved = penstock("redrive", "orders", "fraud", "--id", ids[0], "--id", ids[1], "--yes", "--by", "ops")
    assert moved.json == {"stream": "orders", "group": "fraud", "count": 2, "dry_run": False}
    assert penstock("redrive", "orders", "fraud", "--error", "other", "--dry-run").json["count"] == 0
    assert penstock("redrive", "orders", "fraud", "--error", "boom", "--since", "-1h", "--dry-run").json["count"] == 2
    assert penstock("redrive", "orders", "fraud", "--all", "--yes").json["count"] == 2
    assert counts(penstock) == {"pending": 4, "claimed": 0, "published": 2, "dead": 0}


def test_replay(penstock: Command, log_url: str) -> None:
    ids = fill(log_url)
    work(log_url)
    assert penstock("replay", "orders", "fraud", "--until", "+1h", "--dry-run").json["count"] == 6
    assert penstock("replay", "orders", "fraud", "--id", ids[0], "--yes").json["count"] == 1
    assert counts(penstock)["pending"] == 1


def test_kill(penstock: Command, log_url: str) -> None:
    ids = fill(log_url)
    assert penstock("kill", "orders", "fraud", "--id", ids[0], "--dry-run").json["count"] == 1
    assert counts(penstock)["dead"] == 0
    assert penstock("kill", "orders", "fraud", "--id", ids[0], "--reason", "fraudster", "--yes").json["count"] == 1
    assert penstock("dead", "orders", "fraud").json["dead"][0]["last_error"] == "fraudster"
    for again in ("--dry-run", "--yes"):
        refused = penstock("kill", "orders", "fraud", "--id", ids[0], again)
        assert (refused.code, refused.error) == (1, "illegal_transition")


def test_cancel(penstock: Command, log_url: str) -> None:
    ids = fill(log_url)
    assert penstock("cancel", "orders", "fraud", "--id", ids[0], "--dry-run").json["count"] == 1
    assert counts(penstock)["dead"] == 0
    assert penstock("cancel", "orders", "fraud", "--id", ids[0], "--reason", "a loop", "--yes").json == {
        "stream": "orders",
        "group": "fraud",
        "count": 1,
        "dry_run": False,
        "running": 0,
    }
    assert penstock("dead", "orders", "fraud").json["dead"][0]["error_code"] == "cancelled"
    for mistake, error in (
        (("fraud", "--id", ids[0], "--yes"), "illegal_transition"),
        (("fraud", "--yes"), "missing_field"),
    ):
        assert penstock("cancel", "orders", *mistake).error == error
    assert penstock("cancel", ids[0], "--dry-run").code == 2


def test_reschedule(penstock: Command, log_url: str) -> None:
    ids = fill(log_url)
    assert penstock("reschedule", "orders", "fraud", "--id", ids[0], "--at", "+1h", "--dry-run").json["count"] == 1
    assert penstock("reschedule", "orders", "fraud", "--id", ids[0], "--at", "+1h").json["count"] == 1
    work(log_url)
    assert counts(penstock) == {"pending": 1, "claimed": 0, "published": 5, "dead": 0}


def test_skip(penstock: Command, log_url: str) -> None:
    ids = fill(log_url)
    penstock("group", "create", "orders", "ledger", "--ordering", "key", "--on-dead", "halt")
    work(log_url, "ledger", dead=ids[:1])
    assert counts(penstock, "ledger")["pending"] == 2
    assert penstock("skip", "orders", "ledger", "c-0", "--dry-run").json["count"] == 1
    assert penstock("skip", "orders", "ledger", "c-0", "--yes").json["count"] == 1
    work(log_url, "ledger")
    assert counts(penstock, "ledger") == {"pending": 0, "claimed": 0, "published": 5, "dead": 1}


def test_an_event_is_named_by_its_offset_everywhere(penstock: Command, log_url: str) -> None:
    """What `show` takes, the commands that act take, too."""
    ids = fill(log_url)
    assert penstock("kill", "orders", "fraud", "--id", 1, "--id", ids[0], "--id", 2, "--yes").json["count"] == 2
    assert penstock("reschedule", "orders", "fraud", "--id", 3, "--at", "-1h").json["count"] == 1
    assert penstock("redrive", "orders", "fraud", "--id", 1, "--id", ids[1], "--yes").json["count"] == 2
    work(log_url)
    assert penstock("replay", "orders", "fraud", "--id", 6, "--yes").json["count"] == 1
    for verb, more in (("redrive", ()), ("replay", ()), ("kill", ()), ("reschedule", ("--at", "now"))):
        refused = penstock(verb, "orders", "fraud", "--id", 99, *more, *(() if more else ("--yes",)))
        assert (refused.code, refused.error) == (1, "unknown_event"), verb


def test_reap(penstock: Command, log_url: str) -> None:
    fill(log_url)
    with library.open(log_url) as log:
        assert log.claim("orders", "fraud", claimed_by="gone", lease_seconds=0.001)
    assert penstock("reap").json == {"ended": 1}
    assert penstock("reap").json == {"ended": 0}


# --- a process of its own -------------------------------------------------------------------------------------------


def test_a_process_of_its_own(log_url: str) -> None:
    fill(log_url)
    start = [sys.executable, "-m", "penstock.cli"]
    environment = {**os.environ, "PENSTOCK_URL": log_url}
    done = subprocess.run([*start, "stats", "--json"], env=environment, check=True, capture_output=True)
    assert json.loads(done.stdout)["groups"][0]["pending"] == 6
    refused = subprocess.run([*start, "no-such"], env=environment, check=False, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "[usage]" in refused.stderr and "Traceback" not in refused.stderr


def test_a_reader_that_leaves_is_no_error(log_url: str, tmp_path: Path) -> None:
    fill(log_url, 2_000)
    command = f"{sys.executable} -m penstock.cli events orders --limit 2000 | head -n 1"
    environment = {**os.environ, "PENSTOCK_URL": log_url}
    done = subprocess.run(command, shell=True, env=environment, check=True, capture_output=True, text=True)
    assert done.stderr == ""
