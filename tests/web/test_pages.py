"""Every page: on an empty log and a full one, for everybody and for those who may see a part."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any

import httpx
import pytest

import penstock
from penstock.http.auth import NoAuth
from penstock.web.pages import PAGES
from tests.support.furnished import GROUP, HOSTILE, STREAM, furnish
from tests.support.http_service import Service, serving
from tests.support.raw_sql import raw
from tests.support.web_pages import addresses, of_stream, shown

LIVE = {"HX-Request": "true", "HX-Trigger": "live"}


def dump(log: penstock.Log) -> dict[str, list[str]]:
    """Every row of every table."""
    if log.store.kind == "sqlite":
        names = "select name from sqlite_master where type = 'table' and name not like 'sqlite_stat%'"
    else:
        names = "select 'penstock.' || tablename from pg_tables where schemaname = 'penstock'"
    with raw(log.store.url) as sql:
        return {name: sorted(map(repr, sql(f"select * from {name}"))) for (name,) in sql(names)}


@pytest.mark.shows("O02", "K22", "O13")
def test_every_page_is_answered_and_looking_changes_nothing(site: Service) -> None:
    facts = furnish(site.log)
    http = site.http()
    before = dump(site.log)
    for path, address in addresses(facts).items():
        answer = http.get(address)
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html"), (path, answer.text)
        assert "<script>" not in answer.text and " style=" not in answer.text and " onclick=" not in answer.text, path
        again = http.get(address, headers=LIVE)
        assert again.status_code == 200 and "<html" not in again.text, path
        assert http.head(address).status_code == 200, path
        assert http.post(address).status_code in (403, 405), path
    for action in ("pause", "resume", "rewind", "skip", "release"):
        http.get(f"/-/act/{action}?stream={STREAM}&group={GROUP}&key=c-1&to=beginning")
    http.get("/-/act/repair")
    http.get(f"/-/act/append?stream={STREAM}&type=t")
    assert dump(site.log) == before


@pytest.mark.shows("O02")
def test_an_empty_log_says_what_to_type(site: Service) -> None:
    http = site.http()
    assert "penstock append orders" in http.get("/").text
    assert "Nothing runs" in http.get("/system").text and "penstock token create" in http.get("/system").text
    assert http.get("/search").status_code == 200
    site.log.create_group(STREAM, GROUP)
    site.log.append(STREAM, 1, type="t")
    assert "No worker has claimed yet" in http.get(f"/s/{STREAM}/g/{GROUP}").text
    unknown = http.get(f"/s/{STREAM}/g/nobody")
    assert unknown.status_code == 404 and "unknown_group" in unknown.text
    assert http.get("/s/no%20name").status_code == 422
    missing = http.get("/nowhere", headers={"Accept": "text/html"})
    assert missing.status_code == 404 and "not_found" in missing.text
    assert http.get(f"/s/{STREAM}?before=1e9").status_code == http.get(f"/s/{STREAM}?at=yesterday").status_code == 422


@pytest.mark.shows("O02")
def test_every_panel_says_a_query_and_a_command_that_work(site: Service) -> None:
    """They are run as they are shown."""
    facts = furnish(site.log)
    http = site.http()
    environment = {**os.environ, "PENSTOCK_TOKEN": "none is needed here"}
    ran = 0
    with raw(site.log.store.url) as sql:
        for path, address in addresses(facts).items():
            page = http.get(address).text
            queries, commands = shown(page, "sql"), shown(page, "curl")
            panels = set(re.findall(r'<details class="how">', page))
            assert not panels or commands, path
            for panel, query in queries.items():
                found = sql(query.replace("%", "%%") if site.log.store.kind == "postgresql" else query)
                assert isinstance(found, list), (path, panel)
            for panel, command in commands.items():
                done = subprocess.run(["sh", "-c", f"{command} -sS"], capture_output=True, env=environment, check=True)
                assert "code" not in json.loads(done.stdout), (path, panel, command, done.stdout)
                ran += 1
        (groups,) = (query for panel, query in shown(http.get("/").text, "sql").items() if panel == "groups")
        found = {(row[0], row[1]): row[2:] for row in sql(groups)}
    assert ran > 15
    survey = site.log.survey()
    for one in survey.stats.groups:
        counted = (one.pending, one.claimed, survey.retrying[one.stream, one.group], one.dead, one.lag)
        assert found.get((one.stream, one.group), (0, 0, 0, 0, 0)) == counted


@pytest.mark.shows("O02", "X09")
def test_hostile_names_and_payloads_are_shown_as_text(site: Service) -> None:
    log = site.log
    log.create_group(STREAM, GROUP, ordering="key", on_dead="halt")
    bodies: list[Any] = [
        {"x": HOSTILE},
        {"\u202eabc": "\u2066'\"&"},
        {"n": 2**63 - 1},
        HOSTILE,
        "'\"><img src=x onerror=alert(1)>",
    ]
    for body in bodies:
        log.append(STREAM, body, type="t", ordering_key=HOSTILE)
    log.append(
        STREAM, b'{"big": 1e400, "id": 123456789012345678901234567890}', type="t", content_type="application/json"
    )
    lease = log.claim(STREAM, GROUP, limit=1, claimed_by=HOSTILE)
    assert lease is not None
    lease.settle(dead={lease.events[0].event_id: f"boom {HOSTILE}"})
    log.claim(STREAM, GROUP, claimed_by=f"reader:{HOSTILE}")
    log.pause(STREAM, GROUP, reason=HOSTILE, by=HOSTILE)
    http = site.http()
    paths = ["/", f"/s/{STREAM}", f"/s/{STREAM}/g/{GROUP}", "/system"]
    paths += [
        f"/search?q={HOSTILE}",
        f"/s/{STREAM}?type={HOSTILE}",
        f"/-/act/skip?stream={STREAM}&group={GROUP}&key={HOSTILE}",
    ]
    for path in paths:
        page = http.get(path)
        assert page.status_code == 200 and HOSTILE not in page.text and "<img src=x" not in page.text, path
        assert "&lt;script&gt;" in page.text, path
    listed = http.get(f"/s/{STREAM}").text
    assert "1e400" in listed and "123456789012345678901234567890" in listed and str(2**63 - 1) in listed
    assert HOSTILE not in http.get(f"/-/act/{HOSTILE}").text and HOSTILE not in http.get(f"/{HOSTILE}").text


@pytest.mark.shows("X09")
def test_every_page_for_every_identity(log: penstock.Log) -> None:
    facts = furnish(log)
    with serving(log) as service:
        known = addresses(facts)
        stranger = service.http()
        bearer = {name: service.http(service.token(*scopes)) for name, scopes in _IDENTITIES.items()}
        for page in PAGES:
            address = known[page.path]
            refused = stranger.get(address)
            assert refused.status_code == 303 and refused.headers["location"].startswith("/login?next="), page.path
            assert stranger.get(address, headers=LIVE).status_code == 401, page.path
            assert service.http("wrong").get(address).status_code == 303, page.path
            answers = {name: http.get(address) for name, http in bearer.items()}
            assert answers["all"].status_code == answers["reads"].status_code == 200, page.path
            assert answers["works"].status_code == 403, page.path
            elsewhere = answers["elsewhere"]
            if of_stream(page.path):
                assert elsewhere.status_code == 403, page.path
            for hidden in (f'href="/s/{STREAM}', "grace", "customer", "payment.taken"):
                assert hidden not in elsewhere.text, (page.path, hidden)
            assert '"amount"' not in answers["reads"].text and "amount&#34;" not in answers["reads"].text, page.path
            if page.path == "/s/{stream}":
                assert "amount" in answers["all"].text
        assert stranger.get("/-/events").status_code == 401
        assert "Pause" not in bearer["reads"].get("/").text and "Pause" in bearer["all"].get("/").text
        assert 'id="tokens"' not in bearer["reads"].get("/system").text
        assert 'id="tokens"' in bearer["all"].get("/system").text


_IDENTITIES = {
    "all": ("admin",),
    "reads": ("read",),
    "works": ("work", "append", "operate", "payload"),
    "elsewhere": ("read:elsewhere", "operate:elsewhere", "payload"),
}


@pytest.mark.shows("X09")
def test_actions_need_the_right_and_the_own_site(log: penstock.Log) -> None:
    log.create_group(STREAM, GROUP)
    form = {"stream": STREAM, "group": GROUP, "reason": "deploying"}
    with serving(log) as service:
        http = service.http(service.token("read", "operate", name="ops"))
        path = "/-/act/pause"
        for headers in (
            {},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site", "Origin": service.url},
            {"Sec-Fetch-Site": "none"},
        ):
            assert http.post(path, data=form, headers=headers).status_code == 403, headers
        own = {"Sec-Fetch-Site": "same-origin"}
        looker = service.http(service.token("read", "operate:elsewhere"))
        assert looker.post(path, data=form, headers=own).status_code == looker.get(path, params=form).status_code == 403
        assert service.http().post(path, data=form, headers=own).status_code == 303  # to the login
        assert http.post(path, json=form, headers=own).status_code == 415
        assert http.post(path, content=b"x" * 3_000_000, headers={**own, "Content-Type": _FORM}).status_code == 413
        assert http.post("/-/act/nothing", data=form, headers=own).status_code == 404
        (group,) = log.groups(STREAM)
        assert not group.paused
        unsaid = http.post(path, data={"stream": STREAM, "group": GROUP}, headers=own)
        assert unsaid.status_code == 422 and "Say why" in unsaid.text
        for back, to in (
            ("/s/orders?window=6h", "/s/orders?window=6h&"),
            ("//evil.example", "/?"),
            ("https://e", "/?"),
        ):
            done = http.post(path, data={**form, "back": back}, headers={"Origin": service.url})
            assert done.status_code == 303 and done.headers["location"] == f"{to}did=pause", done.text
            log.resume(STREAM, GROUP)
        (entry,) = [one for one in log.audit(limit=1, before=log.audit()[0].id)]
        assert (entry.action, entry.by, entry.detail["reason"]) == ("pause", "ops", "deploying")
        assert "The group is paused." in http.get("/?did=pause").text


_FORM = "application/x-www-form-urlencoded"


@pytest.mark.shows("O02")
def test_actions_show_a_dry_run_and_above_a_thousand_ask_for_the_name(log: penstock.Log) -> None:
    log.create_group(STREAM, GROUP, ordering="key", on_dead="halt", lanes=1)
    log.append_many(STREAM, [{"payload": n, "type": "t", "ordering_key": "k"} for n in range(1_200)])
    lease = log.claim(STREAM, GROUP, limit=1_200, claimed_by="w")
    assert lease is not None
    lease.settle(dead={lease.events[-1].event_id: "boom"})
    with serving(log, NoAuth()) as service:
        http = service.http(Origin=service.url)
        where = {"stream": STREAM, "group": GROUP}
        asks = http.get("/-/act/rewind", params=where).text
        assert "Dry run" in asks and 'name="to"' in asks and 'id="plan"' not in asks
        plan = http.get("/-/act/rewind", params={**where, "to": "beginning"}).text
        assert "1,200 deliveries above beginning are done again." in plan and 'name="typed"' in plan
        assert 'name="cutoff"' in plan and "later arrivals are not included" in plan
        wrong = http.get("/-/act/rewind", params={**where, "to": "yesterday"}).text
        assert "Where to" in wrong and 'id="plan"' not in wrong
        form = {**where, "to": "beginning", "state": "keep", "reason": "again", **hidden(plan)}
        assert http.post("/-/act/rewind", data={**form, "typed": "frau"}).status_code == 422
        unseen = http.post("/-/act/rewind", data={**form, "typed": GROUP, "proof": "7"})
        assert unseen.status_code == 422 and "Look at the plan first" in unseen.text
        skip = {**where, "key": "k", "reason": "it is wrong"}
        assert http.post("/-/act/skip", data=skip).headers["location"].endswith("did=skip&n=1")
        assert log.audit(limit=1)[0].detail == {"key": "k", "reason": "it is wrong"}
        assert http.post("/-/act/skip", data=skip).status_code == 422
        done = http.post("/-/act/rewind", data={**form, "typed": GROUP})
        assert done.status_code == 303 and done.headers["location"] == "/ops/1?did=rewind&n=1200"
        assert "1,200 deliveries are done again: the operation" in http.get("/ops/1?did=rewind&n=1200").text
        assert log.get_operation(1).info.reason == "again"
        assert log.get_operation(1).run(timeout=30).ended
        assert log.stats(STREAM, GROUP).groups[0].pending == 1_200
        event = {"stream": STREAM, "type": "test", "payload": '{"a": 1}', "key": "x"}
        assert http.post("/-/act/append", data=event).status_code == 303
        assert http.post("/-/act/append", data={**event, "payload": "{"}).status_code == 422
        assert log.read(STREAM, after=1_200)[0].json() == {"a": 1}
        repaired = http.post("/-/act/repair", data={"reason": "restored"})
        assert repaired.status_code == 303 and "did=repair" in repaired.headers["location"]


def test_pages_of_events_and_of_the_audit_have_keys(log: penstock.Log) -> None:
    log.append_many(STREAM, [{"payload": n, "type": "a" if n else "rare"} for n in range(90)])
    for n in range(40):
        log.create_token(f"t-{n}", ["read"])
    with serving(log, NoAuth()) as service:
        http = service.http()
        seen: list[str] = []
        address: str | None = f"/s/{STREAM}"
        while address is not None:
            page = http.get(address).text
            seen += re.findall(r'<tr data-row="(\d+)">', page)
            following = re.search(r'rel="next" href="([^"]+)"', page)
            address = None if following is None else following[1].replace("&amp;", "&")
        assert seen == [str(n) for n in range(90, 0, -1)]
        rare = http.get(f"/s/{STREAM}?type=rare").text
        assert re.findall(r'<tr data-row="(\d+)">', rare) == ["1"]
        at = log.event(STREAM, log.append(STREAM, 1, type="late").offset).created_at.isoformat()
        early = http.get(f"/s/{STREAM}", params={"at": at}).text
        assert re.findall(r'<tr data-row="(\d+)">', early)[0] == "90"
        audit = http.get("/system").text
        assert "t-39" in audit and re.search(r"before=\d+", audit)


def hidden(dialog: str) -> dict[str, str]:
    """What a dialog sends without asking."""
    return dict(re.findall(r'<input type="hidden" name="(cutoff|proof)" value="([^"]*)">', dialog))


def login(service: Service, secret: str, **fields: str) -> httpx.Response:
    return service.http(Origin=service.url).post("/login", data={"token": secret, **fields})


@pytest.mark.shows("X09")
def test_a_token_is_exchanged_for_a_cookie(lite: penstock.Log) -> None:
    with serving(lite) as service:
        secret = service.token("read", name="short")
        wrong = login(service, "wrong")
        assert wrong.status_code == 401 and "set-cookie" not in wrong.headers
        assert service.http().post("/login", data={"token": secret}).status_code == 403  # says no origin
        entered = login(service, secret, next="/system")
        assert entered.status_code == 303 and entered.headers["location"] == "/system"
        cookie = entered.headers["set-cookie"]
        name, _, value = cookie.partition(";")[0].partition("=")
        assert name == f"__Host-penstock-{service.url.rpartition(':')[2]}" and secret not in cookie and len(value) > 40
        flags = {part.strip().lower() for part in cookie.split(";")[1:]}
        assert {"httponly", "secure", "samesite=strict", "path=/"} <= flags and "max-age=43200" in flags
        for evil in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"):
            assert login(service, secret, next=evil).headers["location"] == "/"
        browser = service.http(Cookie=f"{name}={value}")
        assert browser.get("/").status_code == 200 and browser.get("/login").status_code == 303
        assert browser.get("/v1/streams").status_code == 401  # cookies are for pages only
        other = service.http(Cookie=f"{name}={value}x")
        assert other.get("/").status_code == 303
        out = browser.post("/logout", headers={"Origin": service.url})
        assert out.status_code == 303 and "max-age=0" in out.headers["set-cookie"].lower()
        assert browser.get("/").status_code == 303


@pytest.mark.shows("X09")
def test_a_session_ends_with_its_token_and_after_a_while(lite: penstock.Log) -> None:
    from penstock.http.auth import Tokens
    from penstock.http.sessions import Sessions

    secret = lite.create_token("t", ["read"]).secret
    tokens = Tokens(lite)
    brief, sessions = Sessions(tokens, seconds=0), Sessions(tokens)
    gone, session = brief.enter(secret), sessions.enter(secret)
    assert gone is not None and brief.access(gone) is None
    assert session is not None and sessions.access(session) is not None and sessions.access("x") is None
    lite.revoke_token("t")
    from tests.support.waiting import wait_until

    wait_until(lambda: sessions.access(session) is None, "the session to end", 3)
    assert sessions.enter(secret) is None and secret not in repr(vars(sessions))


def test_a_link_of_another_site_finds_the_way_in(lite: penstock.Log) -> None:
    """The browser keeps a Strict cookie to itself then: the page asks again, from here."""
    with serving(lite) as service:
        linked = service.http(**{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}).get(
            "/s/orders?window=6h"
        )
        assert linked.status_code == 200 and 'content="0; url=/s/orders?window=6h"' in linked.text
