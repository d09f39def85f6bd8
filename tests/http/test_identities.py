"""No token, no entry: every route for every kind of identity; and what tokens may see."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

import penstock
from penstock.errors import Forbidden, TokenExists, UnknownToken
from penstock.http.auth import NoAuth, Tokens
from penstock.log.tokens import ENVIRONMENT
from tests.support.http_routes import GROUP, JOB_STREAM, STREAM, Sample, prepare, samples
from tests.support.http_service import SCOPES, Service, is_problem, serving
from tests.support.raw_sql import raw
from tests.support.roles import worker_role
from tests.support.waiting import wait_until


def rows(log: penstock.Log, statement: str) -> list[tuple[Any, ...]]:
    with raw(log.store.url) as sql:
        return sql(statement)


def ask(http: httpx.Client, one: Sample) -> httpx.Response:
    return http.request(one.method, one.path, json=one.body)


@pytest.mark.shows("X09")
def test_every_route_for_every_identity(service: Service) -> None:
    facts = prepare(service.log)
    routes = samples(facts)
    described = service.app.openapi()["paths"]
    known = {(method.upper(), path) for path, methods in described.items() for method in methods}
    assert known == {(one.method, one.route) for one in routes}, "every route has its sample"
    revoked = service.token(name="revoked")
    service.log.revoke_token("revoked")
    strangers = [service.http(), service.http("wrong"), service.http(revoked)]
    strangers += [service.http(Authorization="Basic YTpi"), service.http(Authorization="Bearer")]
    for one in routes:
        assert described[one.route][one.method.lower()].get("x-scope") == one.scope
        if one.scope is None:
            assert ask(strangers[0], one).status_code == 200
            continue
        for stranger in strangers:
            assert is_problem(ask(stranger, one), 401, "unauthorized"), one
        lacking = service.http(service.token(*({*SCOPES} - {one.scope})))
        assert is_problem(ask(lacking, one), 403, "forbidden"), one
        elsewhere = ask(service.http(service.token(f"{one.scope}:elsewhere", "payload")), one)
        if one.filtered:
            assert elsewhere.status_code == 200 and STREAM not in elsewhere.text and "mail" not in elsewhere.text
        elif one.elsewhere == 403:
            assert is_problem(elsewhere, 403, "forbidden"), one
        else:
            assert elsewhere.status_code == one.elsewhere, one
    for one in routes:
        if one.scope is None:
            continue
        if one.everywhere:
            scopes = (one.scope,)
        else:
            scopes = tuple(f"{one.scope}:{stream}" for stream in (STREAM, "jobs:default:*"))
            scopes += tuple(f"{scope}:{STREAM}" for scope in one.also)
        answer = ask(service.http(service.token(*scopes, name=one.owner)), one)
        assert answer.status_code in (200, 201, 204), (one, answer.text)


@pytest.mark.shows("X09")
def test_a_revoked_token_stops_working(service: Service) -> None:
    secret = service.token("read", name="short")
    http = service.http(secret)
    assert http.get("/v1/streams").status_code == 200
    service.log.revoke_token("short")
    wait_until(lambda: http.get("/v1/streams").status_code == 401, "the token to be refused", 5)


@pytest.mark.shows("X09")
def test_bodies_need_a_scope_of_their_own(service: Service) -> None:
    facts = prepare(service.log)
    service.log.complete_job(facts["job"].id, "w", result={"secret": 1})
    looker = service.http(service.token("read", f"payload:{JOB_STREAM}"))
    seer = service.http(service.token("read", "payload"))
    paths = [
        f"/v1/streams/{STREAM}/events",
        f"/v1/streams/{STREAM}/events/{facts['dead']}",
        f"/v1/streams/{STREAM}/groups/{GROUP}/deliveries",
        f"/v1/streams/{STREAM}/groups/{GROUP}/deliveries/{facts['dead']}",
    ]
    for path in paths:
        assert '"payload"' not in looker.get(path).text and '"payload"' in seer.get(path).text
    assert looker.get(f"/v1/jobs/{facts['job'].id}").json()["result"] == {"secret": 1}
    blind = service.http(service.token("read")).get(f"/v1/jobs/{facts['job'].id}").json()
    assert "payload" not in blind and "result" not in blind


@pytest.mark.shows("X09")
def test_a_token_for_some_jobs_claims_only_those(service: Service) -> None:
    for queue, kind in (("default", "mail"), ("default", "report"), ("slow", "mail")):
        service.log.submit(kind, {}, queue=queue)
    client = service.client("work:jobs:default:0:mail", "work:jobs:slow:*", "read")
    with pytest.raises(Forbidden):
        client.claim_job("w")
    with pytest.raises(Forbidden):
        client.claim_job("w", ["report"])
    assert client.claim_job("w", queue="slow") is not None
    wide = service.client("work:jobs:default:*")
    assert [one.type for one in wide.claim_jobs("w", limit=5)] == ["mail", "report"]


@pytest.mark.shows("X09")
def test_the_audit_names_the_token(service: Service) -> None:
    prepare(service.log)
    client = service.client("operate", name="ops-laptop")
    client.pause(STREAM, GROUP, reason="deploying")
    found = rows(service.log, "select by from penstock.audit where action = 'pause'")
    assert [row[0] for row in found] == ["ops-laptop"]


@pytest.mark.shows("X09")
def test_a_page_of_another_site_is_refused(service: Service) -> None:
    http = service.http(service.token())
    event = {"payload": 1, "type": "t"}
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://[", "file://"):
        refused = http.post("/v1/streams/a/events", json=event, headers={"Origin": origin})
        assert is_problem(refused, 403, "cross_site"), origin
    assert http.post("/v1/streams/a/events", json=event, headers={"Origin": service.url}).status_code == 201
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        sent = http.post("/v1/streams/a/events", content=b'{"payload":1,"type":"t"}', headers={"Content-Type": kind})
        assert is_problem(sent, 415, "unsupported_media_type"), kind
    assert len(service.log.read("a")) == 1


@pytest.mark.shows("X09")
def test_without_tokens_only_this_machine_is_answered(log: penstock.Log) -> None:
    with serving(log, NoAuth()) as service:
        http = service.http()
        assert http.get("/v1/streams").json() == {"streams": []}
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
            assert is_problem(http.get("/v1/streams", headers={"Host": host}), 403, "cross_site"), host
        assert http.get("/v1/streams", headers={"Host": "localhost:8787"}).status_code == 200


@pytest.mark.shows("X09")
def test_the_token_of_the_environment_may_do_everything(log: penstock.Log) -> None:
    with serving(log, Tokens(log, "from the environment")) as service:
        assert service.http("from the environment").post("/v1/streams/a/groups", json={"group": "g"}).status_code == 201
        assert is_problem(service.http("from the environmen").get("/v1/streams"), 401, "unauthorized")
        service.http("from the environment").post("/v1/streams/a/groups/g/pause")
    assert rows(log, "select by from penstock.audit where action = 'pause'") == [(ENVIRONMENT,)]


@pytest.mark.shows("X09")
def test_no_secret_is_stored_logged_or_told(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = service.token("read", name="quiet")
    http = service.http(secret)
    told: list[Any] = [http.get("/v1/streams").text, http.get("/v1/nowhere").text, http.post("/v1/streams").text]
    told += [http.post("/v1/streams/a/events", json={"payload": 1, "type": "t"}).text]
    told += [service.http(f"{secret}x").get("/v1/streams").text, *caplog.messages]
    told += [repr(row) for row in rows(service.log, "select name, scopes from penstock.tokens")]
    told += [repr(row) for row in rows(service.log, "select * from penstock.audit")]
    told += [repr(one) for one in service.log.tokens()]
    assert told and all(secret not in str(one) for one in told)
    (stored,) = rows(service.log, "select hash from penstock.tokens where name = 'quiet'")
    assert len(bytes(stored[0])) == 32 and secret.encode() not in bytes(stored[0])


@pytest.mark.shows("X09")
def test_tokens_are_checked_when_they_are_created(log: penstock.Log) -> None:
    for scopes in ([], ["everything"], ["read:"], ["read:a b"], "read", ["read:*x"]):
        with pytest.raises(penstock.InvalidInput):
            log.create_token("t", scopes)
    for name in ("", "a b", "x" * 200):
        with pytest.raises(penstock.InvalidInput):
            log.create_token(name, ["read"])
    log.create_token("t", ["read"])
    for name in ("t", ENVIRONMENT):
        with pytest.raises(TokenExists):
            log.create_token(name, ["read"])
    with pytest.raises(UnknownToken):
        log.revoke_token("nobody")
    assert log.revoke_token("t").revoked_at == log.revoke_token("t").revoked_at is not None


@pytest.mark.shows("O12")
def test_a_token_has_a_rate_of_its_own(log: penstock.Log) -> None:
    with serving(log, requests_per_second=1) as service:
        http, other = service.http(service.token()), service.http(service.token())
        answers = [http.get("/v1/streams") for _ in range(6)]
        assert [one.status_code for one in answers[:2]] == [200, 200]
        refused = next(one for one in answers if one.status_code != 200)
        assert is_problem(refused, 429, "rate_limited") and int(refused.headers["retry-after"]) >= 1
        assert other.get("/v1/streams").status_code == 200


@pytest.mark.shows("X09", "X10")
def test_a_service_needs_no_more_than_the_role_of_a_worker(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    secret = postgres_log.create_token("t", ["admin"]).secret
    postgres_log.create_group(STREAM, GROUP)
    with worker_role(postgres_log_url) as (url, _), penstock.open(url) as log, serving(log) as service:
        http = service.http(secret)
        http.post(f"/v1/streams/{STREAM}/events", json={"payload": 1, "type": "t"})
        claim = {"json": {"claimed_by": "w"}, "headers": {"Idempotency-Key": "k"}}
        first, again = (http.post(f"/v1/streams/{STREAM}/groups/{GROUP}/claim", **claim).json() for _ in range(2))
        assert first == again and len(first["events"]) == 1
        with pytest.raises(penstock.PermissionDenied):
            log.create_token("forged", ["admin"])
