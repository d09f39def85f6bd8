"""Dead letters, operations, events and jobs, without a browser: rights, plans, hostile text, and what is empty."""

from __future__ import annotations

import json
import re
from html import unescape

import httpx
import pytest

import penstock
from penstock.log.problems import ROWS_MOST
from penstock.log.runs import NewRun
from tests.support.furnished import HOSTILE
from tests.support.http_service import Service, serving
from tests.web.test_pages import dump

OWN = {"Sec-Fetch-Site": "same-origin"}
SECRET = "payload-that-few-may-see"
ACTIONS = (
    *("redrive-dead", "purge-dead", "note-kind", "mute-kind", "redrive-event", "replay-event", "reschedule-event"),
    *("kill-event", "mend-event", "cancel-job", "run-schedule", "suspend-schedule", "resume-schedule", "quiet-run"),
    *("stop-run", "wake-run", "pause-operation", "resume-operation", "abort-operation"),
)


def dead_letters(log: penstock.Log, count: int = 3, payload: object = None) -> list[str]:
    """Dead letters of orders/fraud; the ids of their events."""
    log.create_group("orders", "fraud")
    log.append_many("orders", [{"payload": payload or {"n": n}, "type": "order.created"} for n in range(count)])
    lease = log.claim("orders", "fraud", limit=count, claimed_by="w-7")
    assert lease is not None
    lease.settle(dead={event.event_id: ValueError("no such customer") for event in lease.events})
    return [str(event.event_id) for event in lease.events]


def hidden(page: str, name: str) -> str:
    """The value of a hidden field of a dialog."""
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None, page
    return unescape(found[1])


def where(log: penstock.Log, event_id: str) -> dict[str, str]:
    """Everything that the dialogs of the screens ask for."""
    kind = log.fingerprints("orders", "fraud")[0].fingerprint or ""
    about = {"stream": "orders", "group": "fraud", "event_id": event_id, "fingerprint": kind, "fingerprints": kind}
    return about | {"name": "nightly", "run": "1", "number": "1", "at": "10m", "payload": "{}"}


@pytest.mark.shows("K22", "O14")
def test_looking_at_dialogs_and_files_changes_nothing(site: Service) -> None:
    log = site.log
    one, *_ = dead_letters(log)
    log.schedule("nightly", "0 3 * * *", type="report")
    log.start_run(NewRun("shop", "app.py", "local", "0.1", "host-1", 4711, ("report",)))
    log.operation("purge", "orders", "fraud", event_ids=[one]).start()
    http, about = site.http(), where(log, one)
    before = dump(log)
    for action in ACTIONS:
        given = about | ({"stream": "jobs:default:0:report"} if action.endswith("-schedule") else {})
        if action != "cancel-job":
            answer = http.get(f"/-/act/{action}", params=given)
            assert answer.status_code == 200 and "buttons" in answer.text, (action, answer.text)
            dry = http.post(f"/-/act/{action}", data={**given, "dry_run": "1"}, headers=OWN)
            assert dry.status_code == 200 and "<form" in dry.text, (action, dry.text)
    assert http.get(f"/e/{one}/raw").content == b'{"n":0}'
    lines = http.get("/s/orders/g/fraud/dead/export?error=customer")
    assert [json.loads(line)["payload"] for line in lines.text.splitlines()] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert "attachment" in lines.headers["content-disposition"]
    assert dump(log) == before


@pytest.mark.shows("X09", "O14")
def test_without_the_scope_nobody_sees_a_payload(lite: penstock.Log) -> None:
    log = lite
    one, *_ = dead_letters(log, payload={"secret": SECRET})
    job = log.submit("mail", {"secret": SECRET})
    held = log.claim_job("w")
    assert held is not None
    log.complete_job(held.id, "w", token=held.token, result={"secret": SECRET})
    with serving(log) as service:
        reads, sees = (service.http(service.token(*scopes)) for scopes in (("read", "operate", "append"), ("admin",)))
        kind = log.fingerprints("orders", "fraud")[0].fingerprint
        for path in (
            f"/e/{one}",
            f"/e/{job.id}",
            "/jobs",
            "/s/orders/g/fraud/dead",
            f"/s/orders/g/fraud/dead?kind={kind}",
        ):
            page = reads.get(path)
            assert page.status_code == 200 and SECRET not in page.text, path
        assert SECRET in sees.get(f"/e/{one}").text and sees.get(f"/e/{job.id}").text.count(SECRET) == 2
        about = where(log, one)
        for path in (f"/e/{one}/raw", "/s/orders/g/fraud/dead/export"):
            refused, given = reads.get(path), sees.get(path)
            assert refused.status_code == 403 and SECRET not in refused.text and SECRET in given.text, path
        form = reads.get("/-/act/mend-event", params=about)
        assert form.status_code == 403 and SECRET not in form.text
        assert reads.post("/-/act/mend-event", data=about | {"reason": "x"}, headers=OWN).status_code == 403
        assert SECRET in sees.get("/-/act/mend-event", params={**about, "payload": ""}).text
        assert "Export" not in reads.get("/s/orders/g/fraud/dead").text
        assert "Mend" not in reads.get(f"/e/{one}").text and "Mend" in sees.get(f"/e/{one}").text


@pytest.mark.shows("X09")
def test_without_the_right_nothing_is_offered_and_nothing_done(lite: penstock.Log) -> None:
    log = lite
    one, *_ = dead_letters(log)
    log.schedule("nightly", "0 3 * * *", type="report")
    log.start_run(NewRun("shop", "app.py", "local", "0.1", "host-1", 4711, ("report",)))
    operation = log.operation("redrive", "orders", "fraud", event_ids=[one], by="ada").start()
    log.submit("report", {})
    with serving(log) as service:
        reads = service.http(service.token("read", "operate:elsewhere"))
        elsewhere = service.http(service.token("read:elsewhere", "operate:elsewhere"))
        forged = service.http(service.token("admin"))
        before = dump(log)
        for path in ("/s/orders/g/fraud/dead", f"/ops/{operation.id}", "/ops", f"/e/{one}", "/jobs"):
            page = reads.get(path).text
            assert "/-/act/" not in page, (path, re.findall(r"/-/act/[\w-]+", page))
        about = where(log, one) | {"reason": "why", "typed": "fraud", "proof": "all=3@2026-07-01T12:00:00+00:00"}
        for action in (*ACTIONS, "submit-job"):
            given = about | ({"stream": "elsewhere"} if action.endswith(("-operation", "-schedule")) else {})
            tried = [
                reads.post(f"/-/act/{action}", data=about, headers=OWN),
                reads.get(f"/-/act/{action}", params=about),
            ]
            assert [one.status_code for one in tried] == [403, 403], action
            other = elsewhere.post(f"/-/act/{action}", data=given, headers=OWN)
            assert other.status_code in (403, 404, 422), (action, other.status_code)
            for headers in ({}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
                assert forged.post(f"/-/act/{action}", data=about, headers=headers).status_code == 403, action
        for path in (f"/ops/{operation.id}", f"/e/{one}", f"/e/{one}/raw", "/e/1"):
            assert elsewhere.get(path).status_code in (403, 404), path
        for path in ("/ops", "/jobs"):
            assert 'href="/s/' not in elsewhere.get(path).text and "report" not in elsewhere.get(path).text
        assert dump(log) == before


@pytest.mark.shows("O04")
def test_an_old_plan_is_refused_with_the_new_one(lite_site: Service) -> None:
    log = lite_site.log
    ids = dead_letters(log, 4)
    http, about = lite_site.http(), {"stream": "orders", "group": "fraud"}
    dialog = http.get("/-/act/redrive-dead", params=about).text
    assert "4 dead letters go back to PENDING" in dialog
    form = about | {"proof": hidden(dialog, "proof"), "reason": "fixed", "canary": "2", "rate": "", "stop": "1"}
    log.redrive("orders", "fraud", event_ids=ids[:1])
    refused = http.post("/-/act/redrive-dead", data=form, headers=OWN)
    assert refused.status_code == 422 and "The plan found 4 deliveries, and now there are 3" in refused.text
    assert "look at it, and start again" in refused.text and "3 dead letters go back" in refused.text
    assert log.operations() == []
    again = form | {"proof": hidden(refused.text, "proof")}
    started = http.post("/-/act/redrive-dead", data=again, headers=OWN)
    assert started.status_code == 303 and started.headers["location"] == "/ops/1?did=redrive-dead"
    (one,) = log.operations()
    assert (one.canary, one.rate_per_second, one.stop_on_return, one.reason) == (2, None, 1, "fixed")
    twice = http.post("/-/act/redrive-dead", data=again, headers=OWN)  # another browser, with the same plan
    assert twice.status_code == 422 and "Operation 1 does the same, and has not ended" in twice.text
    assert len(log.operations()) == 1
    assert http.post("/-/act/redrive-dead", data=about | {"reason": "x"}, headers=OWN).status_code == 422


@pytest.mark.shows("O14")
def test_kinds_have_notes_and_several_are_purged_together(lite_site: Service) -> None:
    log = lite_site.log
    log.create_group("orders", "fraud")
    log.append_many("orders", [{"payload": n, "type": "t"} for n in range(6)])
    lease = log.claim("orders", "fraud", claimed_by="w")
    assert lease is not None
    errors = (ValueError("bad"), KeyError("x"), TimeoutError("slow"))
    lease.settle(dead={event.event_id: errors[place % 3] for place, event in enumerate(lease.events)})
    kinds = [one.fingerprint or "" for one in log.fingerprints("orders", "fraud")]
    http, about = lite_site.http(), {"stream": "orders", "group": "fraud", "fingerprint": kinds[0]}
    http.post("/-/act/note-kind", data=about | {"note": "fixed in 4.2", "owner": "payments"}, headers=OWN)
    http.post("/-/act/mute-kind", data=about, headers=OWN)
    page = http.get("/s/orders/g/fraud/dead").text
    assert "fixed in 4.2" in page and "payments" in page and 'class="muted"' in page
    assert "fixed in 4.2" in http.get("/-/act/note-kind", params=about).text
    asked = [("stream", "orders"), ("group", "fraud"), ("fingerprints", kinds[1]), ("fingerprints", kinds[2])]
    dialog = http.get("/-/act/purge-dead", params=httpx.QueryParams(asked)).text
    assert "4 dead letters leave the queue for good" in dialog and "each of 2 kinds" in dialog
    chosen = {"stream": "orders", "group": "fraud", "fingerprints": hidden(dialog, "fingerprints"), "reason": "old"}
    done = http.post("/-/act/purge-dead", data=chosen | {"proof": hidden(dialog, "proof")}, headers=OWN)
    assert done.status_code == 303 and done.headers["location"].startswith("/ops?")
    while log.run_operations():
        pass
    assert [(one.kind, one.state, one.moved) for one in log.operations()] == [("purge", "done", 2)] * 2
    left = http.get("/s/orders/g/fraud/dead").text
    assert kinds[0] in left and kinds[1] not in left
    audit = [one.action for one in log.audit()]
    assert {"note_fingerprint", "operation_start", "operation_done"} <= {*audit}


@pytest.mark.shows("O02", "O14")
def test_one_event_is_acted_on_and_mended(site: Service) -> None:
    log = site.log
    body = b'{"id": 123456789012345678901234567890, "x": 1e400}'
    log.create_group("orders", "fraud")
    made = log.append("orders", body, type="t", content_type="application/json", ordering_key="c-42")
    http, about = site.http(), {"stream": "orders", "group": "fraud", "event_id": str(made.event_id), "reason": "why"}

    def act(name: str, **fields: str) -> httpx.Response:
        return http.post(f"/-/act/{name}", data=about | fields, headers=OWN)

    assert act("reschedule-event", at="1h").status_code == 303
    page = http.get(f"/e/{made.event_id}").text
    assert "123456789012345678901234567890" in page and "1e400" in page and "rescheduled" in page
    assert act("redrive-event").status_code == 422  # it is not dead
    assert act("kill-event").status_code == 303
    assert act("redrive-event").status_code == 303 and act("kill-event").status_code == 303
    same = act("mend-event", payload=body.decode())
    assert same.status_code == 422 and "this is the one that failed" in same.text
    assert act("mend-event", payload="{").status_code == 422
    mended = act("mend-event", payload='{"id": 123456789012345678901234567891}')
    assert mended.status_code == 303, mended.text
    new = mended.headers["location"].partition("?")[0]
    page = http.get(new).text
    assert "123456789012345678901234567891" in page and f'href="/e/{made.event_id}"' in page
    old = http.get(f"/e/{made.event_id}").text
    assert f'href="{new}"' in old and "mended" in old and "why" in old
    lease = log.claim("orders", "fraud", claimed_by="w")
    assert lease is not None and lease.events[0].payload == b'{"id": 123456789012345678901234567891}'
    lease.settle()
    about["event_id"] = new.rpartition("/")[2]
    assert act("replay-event").status_code == 303
    assert [one.outcome for one in log.delivery("orders", "fraud", about["event_id"]).history][-1] == "replayed"
    assert {one.detail.get("reason") for one in log.audit() if one.action in ("redrive", "replay", "mend")} == {"why"}


@pytest.mark.shows("O02")
def test_jobs_schedules_and_workers_are_acted_on(site: Service) -> None:
    log, http = site.log, site.http()
    assert "penstock worker app.py" in http.get("/jobs").text
    job = {
        "type": "email:send",
        "payload": '{"n": 12345678901234567890123}',
        "queue": "slow",
        "priority": "3",
        "at": "",
    }
    done = http.post("/-/act/submit-job", data=job, headers=OWN)
    assert done.status_code == 303
    (one,) = log.jobs()
    assert (one.queue, one.priority, one.payload) == ("slow", 3, b'{"n": 12345678901234567890123}')
    assert http.post("/-/act/submit-job", data=job | {"payload": "{"}, headers=OWN).status_code == 422
    page = http.get("/jobs").text
    assert "email:send" in page and "no worker yet" in page and str(one.id) in page
    about = {"stream": one.stream, "event_id": str(one.id), "reason": "not needed"}
    assert http.post("/-/act/cancel-job", data=about, headers=OWN).status_code == 303
    assert log.job(one.id).status == "DEAD"
    log.schedule("nightly", "0 3 * * *", type="report")
    of = {"stream": "jobs:default:0:report", "name": "nightly"}
    assert http.get("/jobs").text.count(" 03:00") == 3  # the next three runs
    for action in ("suspend-schedule", "resume-schedule", "run-schedule"):
        assert http.post(f"/-/act/{action}", data=of, headers=OWN).status_code == 303, action
    assert [two.type for two in log.jobs(state="PENDING")] == ["report"]
    run = log.start_run(NewRun("shop", "app.py", "local", "0.9.1", "web-1", 4711, ("report",)))
    assert "0.9.1" in http.get("/jobs").text and "web-1" in http.get("/jobs").text
    for action, wanted in (("quiet-run", "quiet"), ("wake-run", "run"), ("stop-run", "stop")):
        assert http.post(f"/-/act/{action}", data={"run": str(run)}, headers=OWN).status_code == 303
        assert log.wanted_of_run(run) == wanted
    held = log.claim_job("worker-9")
    assert held is not None
    log.heartbeat(held.id, "worker-9", token=held.token, progress=0.62, message="page 62")
    page = http.get(f"/e/{held.id}").text
    assert "62%" in page and "page 62" in page and "worker-9" in page
    log.complete_job(held.id, "worker-9", token=held.token, result={"big": 2**62})
    assert str(2**62) in http.get(f"/e/{held.id}").text


@pytest.mark.shows("O02", "X09")
def test_hostile_text_is_text_on_the_screens(lite_site: Service) -> None:
    log = lite_site.log
    log.create_group("orders", "fraud", retry=penstock.Retry(max_attempts=1))
    made = log.append(
        "orders", {"x": HOSTILE}, type="t", ordering_key=HOSTILE, headers={"h": HOSTILE}, metadata={"m": HOSTILE}
    )
    lease = log.claim("orders", "fraud", claimed_by=HOSTILE)
    assert lease is not None
    try:
        raise type(f"E{HOSTILE}", (Exception,), {})(HOSTILE)
    except Exception as error:
        lease.settle(dead={made.event_id: error})
    kind = log.fingerprints("orders", "fraud")[0].fingerprint
    log.note_fingerprint("orders", "fraud", kind, note=HOSTILE, owner=HOSTILE)
    operation = log.operation("redrive", "orders", "fraud", error=HOSTILE, reason=HOSTILE, by=HOSTILE).start()
    log.submit("mail", {"x": HOSTILE})
    job = log.claim_job(HOSTILE)
    assert job is not None
    log.heartbeat(job.id, HOSTILE, token=job.token, progress=0.1, message=HOSTILE)
    log.start_run(NewRun(HOSTILE, HOSTILE, "local", HOSTILE, HOSTILE, 1, (HOSTILE,)))
    http = lite_site.http()
    paths = [f"/e/{made.event_id}", f"/e/{job.id}", "/jobs", "/ops", f"/ops/{operation.id}", "/s/orders/g/fraud/dead"]
    paths += [f"/s/orders/g/fraud/dead?error={HOSTILE}&kind={HOSTILE}", f"/jobs?type={HOSTILE}&queue=default"]
    about = f"stream=orders&group=fraud&event_id={made.event_id}&fingerprint={kind}&fingerprints={kind}"
    paths += [f"/-/act/{name}?{about}" for name in ("mend-event", "note-kind", "redrive-dead", "redrive-event")]
    for path in paths:
        page = http.get(path)
        assert page.status_code == 200 and HOSTILE not in page.text, (path, page.status_code)
        assert "&lt;script&gt;" in page.text or "redrive-dead" in path, path
    for path in ("/e/nothing", "/e/999999", "/ops/999", "/ops/x", "/jobs?cursor=x", "/s/orders/g/fraud/dead?since=x"):
        assert http.get(path).status_code in (404, 422), path


@pytest.mark.shows("O02")
def test_what_is_empty_or_gone_says_so(lite_site: Service) -> None:
    log, http = lite_site.log, lite_site.http()
    assert "No operation yet" in http.get("/ops").text and "No jobs yet" in http.get("/jobs").text
    log.create_group("orders", "fraud")
    made = log.append("orders", {"n": 1}, type="t")
    assert "None since" in http.get("/s/orders/g/fraud/dead").text
    assert "2026-07-01" in http.get("/s/orders/g/fraud/dead?since=2026-07-01T12:00Z").text
    assert "next in line" in http.get(f"/e/{made.offset}").text
    lease = log.claim("orders", "fraud", claimed_by="w")
    assert lease is not None
    lease.settle()
    log.append("orders", {"n": 2}, type="t")
    log.prune("orders", upto=made.offset)
    for which in (made.event_id, made.offset):
        gone = http.get(f"/e/{which}")
        assert gone.status_code == 200 and "pruned" in gone.text and "up to offset" in gone.text, which
    assert http.get(f"/e/{made.offset + 99}").status_code == 404
    private = log.append("orders", {"secret": SECRET}, type="t")
    assert SECRET in http.get(f"/e/{private.event_id}").text
    log.erase(private.event_id, reason="asked for it")
    erased = http.get(f"/e/{private.event_id}").text
    assert SECRET not in erased and "The payload was erased" in erased and f"/e/{private.event_id}/raw" not in erased


@pytest.mark.shows("O02", "O11")
def test_counts_that_end_at_a_limit_say_so(site: Service) -> None:
    log = site.log
    log.create_group("orders", "fraud", retry=penstock.Retry(max_attempts=1))
    log.append_many("orders", [{"payload": n, "type": "t"} for n in range(ROWS_MOST + 50)])
    while (lease := log.claim("orders", "fraud", limit=5_000, claimed_by="w")) is not None:
        lease.settle(dead={one.event_id: "no" for one in lease.events})
    for path in ("/", "/s/orders", "/s/orders/g/fraud"):
        page = site.http().get(path).text
        assert f"{ROWS_MOST:,}+" in page and f"{ROWS_MOST:,}<" not in page, path
