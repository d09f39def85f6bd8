"""Pages for people with bad intentions: what others see, what errors say, where forms lead."""

from __future__ import annotations

import base64

import pytest

import penstock
from penstock.http.auth import NoAuth
from tests.support.furnished import STREAM, furnish
from tests.support.http_service import Service, is_problem, serving
from tests.support.web_pages import shown

LIVE = {"HX-Request": "true", "HX-Trigger": "live"}


def test_nobody_puts_another_address_into_the_commands_that_others_copy(lite: penstock.Log) -> None:
    """The live part of a page is kept for all who have the same rights; its curl carries their token."""
    furnish(lite)
    with serving(lite) as service:
        one, other = service.http(service.token("read")), service.http(service.token("read"))
        assert "evil.example" in one.get(f"/s/{STREAM}", headers={"Host": "evil.example", **LIVE}).text
        assert "evil.example" not in other.get(f"/s/{STREAM}", headers=LIVE).text


def test_the_query_of_a_panel_names_no_job_of_another_type(lite: penstock.Log) -> None:
    lite.submit("secret", {})
    lite.submit("mine", {})
    with serving(lite) as service:
        page = service.http(service.token("read:jobs:default:0:mine")).get("/jobs").text
        assert "json_each('[2]')" in shown(page, "sql")["jobs"] and "secret" not in page


def test_odd_payloads_are_shown(log: penstock.Log) -> None:
    odd = [b'{"\\udfff": ["\\ud800", "\\u00e9"]}', b"", b"1e400", b"[" * 900 + b"]" * 900, b"\xff"]
    log.create_group("s", "g", retry=penstock.Retry(max_attempts=1))
    log.append_many("s", [{"payload": one, "type": "t", "content_type": "application/json"} for one in odd])
    lease = log.claim("s", "g", claimed_by="w")
    assert lease is not None
    lease.settle(dead={one.event_id: "no" for one in lease.events})
    with serving(log, NoAuth()) as service:
        http = service.http()
        pages = [http.get(f"/e/{one.event_id}") for one in lease.events]
        assert [one.status_code for one in pages] == [200] * len(odd)
        assert "&#34;\\udfff&#34;: [" in pages[0].text and "\\ud800" in pages[0].text and "é" in pages[0].text
        assert http.get("/s/s").status_code == 200
        lines = http.get("/s/s/g/g/dead/export").text.splitlines()
        assert len(lines) == len(odd) and base64.b64encode(odd[0]).decode() in lines[0]


def test_what_is_wrong_with_an_export_is_said_before_it_begins(lite_site: Service) -> None:
    lite_site.log.create_group("s", "g")
    http = lite_site.http()
    assert http.get("/s/s/g/g/dead/export?since=0001-01-01T00:00%2B23:59").status_code == 422
    assert http.get("/s/s/g/g/dead/export?fingerprints=%00").status_code == 200


def test_times_that_utc_does_not_have_are_refused(lite_site: Service) -> None:
    log = lite_site.log
    log.create_group("s", "g")
    event_id = str(log.append("s", 1, type="t").event_id)
    http = lite_site.http(Origin=lite_site.url)
    for odd in ("0001-01-01T00:00+23:59", "9999-12-31T23:59-23:59"):
        form = {"stream": "s", "group": "g", "event_id": event_id, "at": odd, "reason": "r", "dry_run": "1"}
        assert "When is a time such as" in http.post("/-/act/reschedule-event", data=form).text
        assert http.get("/s/s", params={"at": odd}).status_code == 422


def test_the_door_answers_those_who_ask_for_its_headers_only(lite: penstock.Log) -> None:
    with serving(lite) as service:
        asked = service.http().head("/login")
        assert asked.status_code == 200 and not asked.content and "set-cookie" not in asked.headers


@pytest.mark.shows("O12")
def test_the_api_is_the_same_for_a_browser(lite_site: Service) -> None:
    http = lite_site.http(Accept="text/html")
    for path in ("/v1/streams", "/v1/operations", "/healthz", "/readyz", "/openapi.json"):
        assert http.get(path).headers["content-type"] == "application/json", path
    assert http.get("/metrics").headers["content-type"].startswith("text/plain")
    assert is_problem(http.get("/v1/nothing"), 404, "not_found")
    assert http.get("/nothing").headers["content-type"].startswith("text/html")
