"""Every mistake on every route is a problem with a code, and nothing hostile gets further than that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import orjson
import pytest

import penstock
from penstock.errors import all_errors
from penstock.http.problems import status_of
from tests.support.http_routes import STREAM, prepare, samples
from tests.support.http_service import Service, is_problem, serving

MIB = 1024 * 1024
DEEP = b"[" * 10_000 + b"]" * 10_000
JSON = {"Content-Type": "application/json"}


@pytest.mark.shows("O12")
def test_every_route_answers_mistakes_with_problems(service: Service) -> None:
    routes = samples(prepare(service.log))
    http = service.http(service.token())
    for one in routes:
        if one.scope is None:
            continue
        assert is_problem(http.patch(one.path), 405, "method_not_allowed"), one
        if not one.route.startswith("/v1/state/"):  # a key may have slashes
            assert is_problem(http.get(f"{one.path.partition('?')[0]}/no/such/path"), 404, "not_found"), one
        if one.method != "POST":
            continue
        assert is_problem(http.post(one.path, content=b"x", headers={"Content-Type": "text/plain"}), 415), one
        large = {**JSON, "Content-Length": str(9 * MIB)}
        assert is_problem(http.post(one.path, content=b" " * 9 * MIB, headers=large), 413, "too_large"), one
        if one.body is not None:
            assert is_problem(http.post(one.path, content=b"{", headers=JSON), 400, "malformed_body"), one
            assert is_problem(http.post(one.path, json={"no_such_field": 1}), 422), one
            assert is_problem(http.post(one.path, json=[1]), 422, "invalid_input"), one
    assert is_problem(http.get("/nowhere"), 404, "not_found")
    assert is_problem(http.get("/v1/streams/a/groups/nobody/deliveries"), 404, "unknown_group")


@pytest.mark.shows("O12")
def test_a_body_without_an_announced_length_is_limited_too(service: Service) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * MIB

    http = service.http(service.token())
    try:
        answer = http.post("/v1/streams/a/events", content=chunks(), headers=JSON)
    except httpx.TransportError:
        return  # it has hung up, which it may, in the middle of what it does not read
    assert is_problem(answer, 413, "too_large")


@pytest.mark.shows("O12")
def test_every_error_has_a_status() -> None:
    for code, error in all_errors().items():
        assert 400 <= status_of(error) <= 503, code
    expected = {"lease_lost": 409, "settle_mismatch": 409, "unknown_job": 404, "too_large": 413, "invalid_name": 422}
    assert {code: status_of(all_errors()[code]) for code in expected} == expected


@pytest.mark.shows("O12")
def test_an_error_that_nobody_foresaw_is_a_problem_without_words(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(service.log, "runs", fail)
    answer = service.http(service.token()).get("/v1/runs")
    assert is_problem(answer, 500, "internal_error") and "hunter2" not in answer.text
    assert "RuntimeError" in caplog.text


@pytest.mark.shows("O12")
def test_readiness_is_that_of_the_database(log: penstock.Log) -> None:
    with serving(log) as service:
        http = service.http()
        assert http.get("/readyz").json() == {"status": "ready", "targets_down": []}
        log.close()
        assert is_problem(http.get("/readyz"), 503, "store_unavailable")
        assert http.get("/healthz").json() == {"status": "ok"}
        down = service.http("any").get("/v1/streams")
        assert is_problem(down, 503) and "://" not in down.text, "a stranger is not told where the database is"


@pytest.mark.shows("R03", "O12")
def test_readiness_names_the_groups_whose_targets_are_down_but_not_why(log: penstock.Log) -> None:
    log.append("orders", {}, type="t")
    log.create_group("orders", "to-kafka", lanes=1)
    lease = log.claim("orders", "to-kafka", limit=1, claimed_by="w")
    assert lease is not None
    lease.settle(released=[one.event_id for one in lease.events], unavailable="kafka.internal refused hunter2")
    with serving(log) as service:
        answer = service.http().get("/readyz")
        (since,) = [one.since for one in log.circuits()]
    assert answer.status_code == 200 and "hunter2" not in answer.text
    assert answer.json()["status"] == "degraded"
    (down,) = answer.json()["targets_down"]
    assert (down["stream"], down["group"]) == ("orders", "to-kafka")
    assert datetime.fromisoformat(down["since"]) == since


HOSTILE = [
    b"",
    b"\x00",
    b"\xff\xfe",
    b"null",
    b"[]",
    b"5",
    b'"text"',
    b"{}",
    b"NaN",
    b'{"payload": NaN, "type": "t"}',
    b'{"payload": 1e400, "type": "t"}',
    b'{"payload": 1e-400, "type": "t"}',
    b'{"payload": 123456789012345678901234567890, "type": "t"}',
    b'{"payload": 0.12345678901234567890123, "type": "t"}',
    b'{"payload": ' + b"9" * 5_000 + b', "type": "t"}',
    b'{"payload": "\\ud800", "type": "t"}',
    b'{"payload": ' + DEEP + b', "type": "t"}',
    DEEP,
    b'{"payload": {"base64": "no base64!"}, "type": "t"}',
    b'{"payload": {"base64": 5}, "type": "t"}',
    b'{"payload": 1, "type": "a\\u0000b"}',
    b'{"payload": 1, "type": "t", "headers": {"a\\u0000": "b"}}',
    b'{"payload": 1, "type": "t", "headers": {"a": 1}}',
    b'{"payload": 1, "type": "t", "ordering_key": "\\u0000"}',
    b'{"payload": 1, "type": "t", "metadata": {"a": "\\u0000"}}',
    b'{"payload": 1, "type": "t", "available_at": "0001-01-01T00:00:00+14:00"}',
    b'{"payload": 1, "type": "t", "available_at": 1e300}',
    b'{"payload": 1, "type": "t", "available_at": "9999-12-31T23:59:59-14:00"}',
    b'{"payload": 1, "type": "t", "event_id": "\'; drop table penstock.events; --"}',
    b'{"payload": 1, "type": "t", "content_type": "a\\nb"}',
    b'{"token": 1e5}',
    b'{"token": 99999999999999999999999}',
    b'{"token": -1}',
    b'{"token": "1; drop"}',
    b'{"token": 18446744073709551615}',
    b'{"token": true}',
    b'{"token": 1, "seconds": 1e308}',
    b'{"token": 1, "failed": {"x": "y"}}',
    b'{"token": 1, "worker": "\\u0000", "result": {"a": "\\u0000"}}',
    b'{"limit": 18446744073709551615}',
    b'{"limit": 1, "claimed_by": "\\u0000"}',
    b'{"limit": 1, "wait": -1}',
    b'{"worker": "w", "types": ["a\\u0000"]}',
    b'{"worker": "w", "queue": "\'"}',
    b'{"leases": [{"id": 18446744073709551615, "token": 1}]}',
    b'{"leases": [{"token": 18446744073709551615}]}',
    b'{"leases": [{"token": 1}], "seconds": -5}',
    b'{"event_ids": ["\\u0000"]}',
    b'{"event_ids": [], "reason": "\\u0000"}',
    b'{"all": true, "error": "\\u0000"}',
    b'{"all": true, "type": "\\u0000"}',
    b'{"since": "0001-01-01T00:00:00+14:00", "all": true}',
    b'{"to": 18446744073709551615}',
    b'{"to": -1}',
    b'{"to": "0001-01-01T00:00:00+14:00"}',
    b'{"key": "\\u0000"}',
    b'{"reason": "\\u0000"}',
    b'{"group": "g\\u0000"}',
    b'{"group": "g2", "retry": {"max_attempts": 18446744073709551615}}',
    b'{"group": "g2", "lanes": 7}',
    b'{"group": "g2", "types": ["\\u0000"]}',
    b'{"group": "g2", "headers": {"\\u0000": ""}}',
    b'{"group": "g2", "start": "\\u0000"}',
    b'{"types": [""]}',
    b'{"headers": {"a": "\\u0000"}}',
    b'{"name": "n\\u0000", "cron": "* * * * *", "type": "t"}',
    b'{"name": "n", "cron": "\\u0000", "type": "t"}',
    b'{"name": "n", "cron": "* * * * *", "type": "t", "tz": "../../etc/passwd"}',
    b'{"name": "n", "cron": "* * * * *", "type": "t", "tz": "\\u0000"}',
    b'{"name": "n", "cron": "* * * * *", "type": "t", "payload": {"a": "\\u0000"}}',
    b'{"type": "t", "payload": {"a": "\\u0000"}, "unique": "\\u0000"}',
    b'{"type": "t", "payload": 1, "priority": 18446744073709551615}',
    b'{"type": "t", "payload": 1, "max_attempts": 18446744073709551615}',
    b'{"type": "t", "payload": 1, "unique": "k", "unique_for": 1e308}',
    b'{"jobs": [{"type": "t"}]}',
    b'{"jobs": [1]}',
    b'{"events": [{"payload": 1}]}',
    b'{"events": 1}',
]


@pytest.mark.shows("X08", "X09")
def test_hostile_bodies_are_stored_or_refused_on_every_route(service: Service) -> None:
    routes = [one for one in samples(prepare(service.log)) if one.method == "POST"]
    http = service.http(service.token())
    for one in routes:
        for body in HOSTILE:
            answer = http.post(one.path, content=body, headers=JSON)
            assert answer.status_code < 500, (one.path, body[:100], answer.text)
            assert answer.is_success or is_problem(answer), (one.path, body[:100])


@pytest.mark.shows("X08", "X09")
def test_hostile_paths_and_queries_are_refused(service: Service) -> None:
    prepare(service.log)
    http = service.http(service.token())
    odd = ["%00", "%ff", "%ed%a0%80", "a%27%3B--", "a%20b", "..%2f..%2fetc", "%2e%2e", "x" * 3000, "%F0%9F%92%A9", "'"]
    group = f"/v1/streams/{STREAM}/groups/fraud"
    paths = [
        *("/v1/streams/{}/events", "/v1/streams/{}/groups", "/v1/streams/a/groups/{}/deliveries", "/v1/jobs/{}"),
        *("/v1/streams/orders/events/{}", group + "/deliveries/{}", "/v1/state/orders/fraud/{}", "/v1/state/{}/{}/k"),
        *("/v1/jobs?type={}", "/v1/jobs?queue={}", "/v1/jobs?state={}", "/v1/jobs?cursor={}", "/v1/jobs?limit={}"),
        *(group + f"/deliveries?{name}={{}}" for name in ("state", "type", "error", "since", "until", "cursor")),
        *("/v1/streams/orders/events?cursor={}", "/v1/jobs/{}?wait=0", "/v1/runs?all={}", "/{}"),
    ]
    numbers = ["1e400", "9" * 5000, "-1", str(2**63), "18446744073709551616", "nan", "0x10", "١"]
    for path in paths:
        for text in (*odd, *numbers):
            answer = http.get(path.replace("{}", text))
            assert answer.status_code < 500, (path, text[:40], answer.text)
            assert answer.is_success or is_problem(answer), (path, text[:40])
    for path in ("/v1/leases/{}/release", "/v1/jobs/{}/cancel", "/v1/schedules/{}/run", "/v1/jobs/{}/complete"):
        for text in (*odd, *numbers):
            answer = http.post(path.replace("{}", text), json={"token": 1})
            assert is_problem(answer) and answer.status_code < 500, (path, text[:40], answer.text)
    for key in ("x" * 600, "\x7f", "é", ""):
        headers = {"Idempotency-Key": key.encode()}
        answer = http.post(f"{group}/claim", json={}, headers=headers)  # type: ignore[arg-type]
        assert answer.status_code < 500, (key[:10], answer.text)


@pytest.mark.shows("O12")
def test_unknown_parameters_and_times_that_are_numbers_are_refused(service: Service) -> None:
    service.log.create_group("orders", "fraud")
    http = service.http(service.token())
    group = "/v1/streams/orders/groups/fraud"
    for query in ("stat=DEAD", "state=DEAD&state=DEAD", "since=0", "since=1700000000", "since=12:00"):
        assert is_problem(http.get(f"{group}/deliveries?{query}"), 422, "invalid_input"), query
    for since in (0, 1_700_000_000, "1700000000", "today"):
        answer = http.post(f"{group}/redrive", json={"since": since})
        assert is_problem(answer, 422, "invalid_input"), since
    assert http.get(f"{group}/deliveries?state=DEAD&since=2026-07-01T12:00:00Z").status_code == 200


LOSSY = [
    b"123456789012345678901234567890",
    b"18446744073709551616",
    b"-9223372036854775809",
    b"0.12345678901234567890123",
    b"12345678901234567.5",
    b"1e400",
    b"1e-400",
    b"NaN",
    b"-Infinity",
    b'"\\ud800"',
    b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
]


@pytest.mark.shows("X08")
def test_what_would_change_on_the_way_is_refused(service: Service) -> None:
    http = service.http(service.token())
    for body in LOSSY:
        for wrapped in (body, b'{"deep": [' + body + b"]}"):
            sent = b'{"type": "t", "payload": ' + wrapped + b"}"
            for path in ("/v1/streams/lossy/events", "/v1/jobs"):
                assert is_problem(http.post(path, content=sent, headers=JSON), 400, "malformed_body"), body[:40]
            many = http.post("/v1/streams/lossy/events", content=b'{"events": [' + sent + b"]}", headers=JSON)
            assert is_problem(many, 400, "malformed_body"), body[:40]
    assert service.log.streams() == []


EXACT = [
    b'{"a":"\\u0000"}',
    '"ä 💩 \u2028"'.encode(),
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"0.1",
    b"1.7976931348623157e+308",
    b"5e-324",
    b'{"base64":"aGk="}',
    b"[" * 200 + b"]" * 200,
    b'{"b":1,"a":2}',
    b"false",
    b'""',
]


@pytest.mark.shows("X08")
def test_what_is_accepted_comes_back_as_it_was(service: Service) -> None:
    http = service.http(service.token())
    for body in EXACT:
        sent = {"payload": orjson.Fragment(body), "type": "t"}
        if body.startswith(b'{"base64"'):  # this stands for bytes
            sent["payload"] = {"base64": "eyJiYXNlNjQiOiJhR2s9In0="}
            sent["content_type"] = "application/json"
        made = http.post("/v1/streams/exact/events", content=orjson.dumps(sent), headers=JSON)
        assert made.status_code == 201, (body[:60], made.text)
        stored = service.log.event("exact", made.json()["event_id"])
        assert json.loads(stored.payload) == json.loads(body) and stored.content_type == "application/json"
        shown = http.get(f"/v1/streams/exact/events/{made.json()['event_id']}").json()["payload"]
        if body.startswith(b'{"base64"'):
            assert shown == {"base64": "eyJiYXNlNjQiOiJhR2s9In0="}
        else:
            assert shown == json.loads(body)
    client = service.client()
    for payload in ({"base64": "aGk="}, {"base64": 1}, {"base64": "x", "more": 1}, b"\x00\xff", {"x": "\x00"}, 0.1):
        offset = client.append("exact", payload, type="t").offset
        python = service.log.append("exact", payload, type="t")
        mine, theirs = client.event("exact", offset), service.log.event("exact", python.offset)
        assert (mine.payload, mine.content_type) == (theirs.payload, theirs.content_type)
