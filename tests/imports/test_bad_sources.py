"""Sources that are not as expected: refused before anything is written, or kept aside with the reason."""

from __future__ import annotations

import base64
import pickle
import traceback
from typing import Any

import pytest

import penstock
from penstock.errors import ImportConflict, InvalidSource, SourceUnavailable
from tests.support.import_sources import execute, fill_outbox, import_all, outbox, target
from tests.support.server_process import free_port

pytestmark = pytest.mark.shows("R13")
SECRET = "do-not-show-me"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("drop table openoutbox_events", "There is no table openoutbox_events in the source; name it with --table"),
        (
            "alter table openoutbox_events rename payload to body",
            r"no column 'payload'; it has .*body.*--column payload=",
        ),
        ("alter table openoutbox_events rename event_type to t", "--column event_type=NAME, or give all events one"),
        ("alter table openoutbox_events drop state", "--column state=NAME, or say --published-when"),
        ("alter table openoutbox_events drop event_id", "neither an id nor a primary key"),
        ("update openoutbox_events set state = 'SENT' where attempts = 0", r"'SENT' \(\d+\).*--state theirs=PUBLISHED"),
        ("update openoutbox_events set state = null", r"'null' \(20\)"),
        ("update openoutbox_events set created_at = null", "20 rows .* have no 'created_at'.*--order-by"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_what_to_do(
    log: penstock.Log, postgres_url: str, change: str, words: str
) -> None:
    fill_outbox(postgres_url, 20)
    execute(postgres_url, change)
    with pytest.raises(InvalidSource, match=words):
        import_all(log, outbox(postgres_url))
    assert log.streams() == [] and log.groups() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": {"body": "payload"}}, "there is no field 'body'; fields are event_id"),
        ({"columns": {"payload": "nothing"}}, "has no column 'nothing'; it has event_id"),
        ({"order_by": ["nothing"]}, "has no column 'nothing'"),
        ({"published_when": "sent_at is not null"}, 'The source refuses: column "sent_at" does not exist'),
        ({"published_when": "true) or (("}, "The source refuses: syntax error"),
        ({"published_when": "true; drop table openoutbox_events"}, "The source refuses"),
        ({"table": "no such; table"}, "The source refuses|There is no table"),
        ({"columns": {"attempts": "event_type"}}, "The source refuses: "),
        ({"columns": {"event_id": "ordering_key"}}, "share the same 'ordering_key', and one id is one event"),
    ],
)
def test_options_that_do_not_fit_are_said(
    log: penstock.Log, postgres_url: str, options: dict[str, Any], words: str
) -> None:
    fill_outbox(postgres_url, 20)
    with pytest.raises(InvalidSource, match=words):
        import_all(log, outbox(postgres_url, **options))
    assert execute(postgres_url, "select count(*) from openoutbox_events") == [(20,)]
    assert log.streams() == []


def test_a_condition_cannot_write_to_the_source(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 5)
    execute(
        postgres_url,
        "create function sneaky() returns bool language plpgsql as "
        "$$ begin delete from openoutbox_events; return true; end $$",
    )
    with pytest.raises(InvalidSource, match="read-only"):
        import_all(log, outbox(postgres_url, published_when="sneaky()"))
    assert execute(postgres_url, "select count(*) from openoutbox_events") == [(5,)]


def test_what_cannot_be_an_event_is_kept_aside_with_the_reason(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 30)
    for number, change in enumerate(
        (
            "payload = convert_to(repeat('x', 1048577), 'UTF8')",
            "payload = null",
            "event_type = 'no name'",
            "event_type = null",
            "headers = '{\"a\": 1}'",
            "headers = '[1]'",
            "metadata = '\"text\"'",
            "ordering_key = repeat('k', 600)",
            "headers = jsonb_build_object('a', repeat('x', 9000))",
        )
    ):
        which = f"(select event_id from openoutbox_events order by created_at offset {number * 3} limit 1)"
        execute(postgres_url, f"update openoutbox_events set {change} where event_id = {which}")
    report = import_all(log, outbox(postgres_url))
    assert report.complete and report.tally.copied == 21 and report.tally.rejected == 9
    assert report.tally.reasons == {
        "unfit": 3,
        "missing_field": 2,
        "invalid_name": 1,
        "invalid_input": 1,
        "too_large": 2,
    }
    aside = [one.json() for one in log.read("orders.rejected")]
    assert len(aside) == 9 and "1,048,577 bytes" in aside[0]["reason"] and aside[0].get("payload") is None
    assert "'no name'" in aside[2]["reason"] and aside[2]["states"] == {"relay": "PUBLISHED"}
    assert base64.b64decode(aside[2]["payload"]["base64"]) == b'{"n" : 7}'
    assert len(log.read("orders")) == 21
    again = import_all(log, outbox(postgres_url))
    assert again.before and len(log.read("orders.rejected")) == 9


def test_odd_texts_and_times_survive(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 3)
    execute(
        postgres_url,
        "update openoutbox_events set available_at = 'infinity', payload = '\\x00ff', state = 'DEAD',"
        " ordering_key = '', last_error = repeat('é', 9000), attempts = -5,"
        " metadata = jsonb_build_object('a', repeat('x', 8180))",
    )
    report = import_all(log, outbox(postgres_url))
    assert report.complete and report.tally.copied == 3
    for one in log.deliveries("orders", "relay", state="DEAD"):
        assert one.payload == b"\x00\xff" and one.content_type == "application/octet-stream"
        assert one.last_error is not None and one.last_error.startswith("éé") and one.ordering_key is None
        assert one.metadata.keys() == {"a"}, "no room for what the source knew"


def test_an_import_is_not_continued_with_other_options(log: penstock.Log, postgres_url: str) -> None:
    from penstock.imports import run

    fill_outbox(postgres_url, 20)
    source = outbox(postgres_url)
    with pytest.raises(KeyboardInterrupt):
        run.run(log, source, skip_published=False, by="ada", show=_interrupt)
    source.close()
    with pytest.raises(ImportConflict, match="begun with other options"):
        import_all(log, outbox(postgres_url, dead_when="attempts > 1"))
    assert import_all(log, outbox(postgres_url)).complete


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ada:{SECRET}@127.0.0.1:{{port}}/shop",
        f"postgresql://127.0.0.1:{{port}}/shop?user=ada&password={SECRET}",
        f"postgresql://ada:{SECRET}@no-such-host.invalid/shop",
        f"postgresql://ada:{SECRET}%40@127.0.0.1:{{port}}/shop?nonsense={SECRET}",
        f"mysql://ada:{SECRET}@127.0.0.1/shop",
        f"postgresql://ada:top@{SECRET}@127.0.0.1:{{port}}/shop",
        f"postgresql://ada:top/{SECRET}@127.0.0.1:{{port}}/shop",
        f"postgresql://ada:top#{SECRET}@127.0.0.1:{{port}}/shop",
        f"postgresql://ada:top?{SECRET}@127.0.0.1:{{port}}/shop",
        f"postgresql://127.0.0.1:{{port}}/shop?password={SECRET}&{SECRET}=x",
    ],
)
def test_a_source_that_is_not_there_is_said_without_its_password(url: str) -> None:
    with pytest.raises((SourceUnavailable, InvalidSource)) as raised:
        outbox(url.format(port=free_port()), target=target())
    assert SECRET not in str(raised.value) + repr(raised.value) and SECRET.encode() not in pickle.dumps(raised.value)
    assert SECRET not in "".join(traceback.format_exception(raised.value, limit=0))


def test_no_password_is_stored_or_shown(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 3)
    url = postgres_url.replace("postgres@", f"postgres:{SECRET}@")
    report = import_all(log, outbox(url))
    assert SECRET not in repr(report) and SECRET not in report.source
    with log.store.transaction(write=False) as tx:
        assert SECRET not in repr(tx.one("import.locked", id=1))
