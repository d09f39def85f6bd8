"""Live updates: one look a second for everybody, none for nobody, and what many see is made once."""

from __future__ import annotations

import asyncio
import threading
import time

import httpx
import pytest

import penstock
from penstock.http.auth import NoAuth
from penstock.web import Live
from penstock.web.snapshots import Snapshots
from tests.support.http_service import Service, serving
from tests.support.waiting import wait_until

STREAM, GROUP = "orders", "fraud"


@pytest.mark.shows("O11")
def test_one_look_serves_all_listeners_and_nobody_costs_nothing(log: penstock.Log) -> None:
    async def listen(live: Live, heard: list[list[str]], enough: int) -> None:
        async for _, topics in live.changes(0, seconds=20):
            heard.append(topics)
            if sum("events" in one for one in heard) >= enough:
                return

    async def main() -> tuple[Live, list[list[list[str]]]]:
        live = Live(log, every_seconds=0.05)
        heard: list[list[list[str]]] = [[] for _ in range(10)]
        tasks = [asyncio.create_task(listen(live, one, 1)) for one in heard]
        while live.looks < 2:
            await asyncio.sleep(0.01)
        assert live.listeners == 10
        before = live.looks
        await asyncio.to_thread(log.append, STREAM, 1, type="t")
        await asyncio.gather(*tasks)
        assert live.looks - before < 10
        assert live.listeners == 0
        while live._task is not None:  # the one that looks; without it nobody does
            await asyncio.sleep(0.01)
        return live, heard

    _, heard = asyncio.run(main())
    assert all(any("events" in topics for topics in one) for one in heard)


@pytest.mark.shows("O11", "O12")
def test_the_stream_names_topics_and_goes_on_where_it_ended(site: Service) -> None:
    log, live = site.log, site.app.state.live
    log.create_group(STREAM, GROUP)
    http = site.http()
    with http.stream("GET", "/v1/events/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        wait_until(lambda: live.looks > 0, "the first look")
        log.append(STREAM, {"secret": 1}, type="t")
        log.pause(STREAM, GROUP)
        said: set[str] = set()
        number = ""
        while not {"events", "audit"} <= said:
            line = next(lines)
            number = line.removeprefix("id: ") if line.startswith("id: ") else number
            said |= set(line.removeprefix("data: ").split()) if line.startswith("data: ") else set()
        assert said <= {"events", "leases", "audit", "runs", "beat"}
    missed = http.get("/v1/events/stream?seconds=0", headers={"Last-Event-ID": "0"})
    assert missed.status_code == 200 and missed.text.startswith("retry:")
    again = http.get("/v1/events/stream?seconds=0.2", headers={"Last-Event-ID": "0"}).text
    assert "audit" in again and STREAM not in again and "secret" not in again


@pytest.mark.shows("O11")
def test_a_stream_ends_when_its_token_is_revoked(lite: penstock.Log) -> None:
    with serving(lite) as service:
        http = service.http(service.token("read", name="short"))
        with http.stream("GET", "/-/events") as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("retry")
            lite.revoke_token("short")
            ended = threading.Event()
            busy = threading.Thread(target=_append_until, args=(lite, ended))
            busy.start()
            before = time.monotonic()
            assert [*lines]
            ended.set()
            busy.join()
            assert time.monotonic() - before < 10  # and not after the twenty seconds of a stream
        assert http.get("/-/events").status_code == 401


def _append_until(log: penstock.Log, ended: threading.Event) -> None:
    while not ended.wait(0.2):
        log.append(STREAM, 1, type="t")


@pytest.mark.shows("O11")
def test_what_many_see_is_made_once(lite: penstock.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    survey = lite.survey

    def counted() -> object:
        looks.append(1)
        return survey()

    monkeypatch.setattr(lite, "survey", counted)
    with serving(lite, NoAuth()) as service:
        http = service.http()
        live = {"HX-Request": "true", "HX-Trigger": "live"}
        answers = [http.get("/", headers=live).text for _ in range(5)]
        assert len({*answers}) == 1 and len(looks) == 1
        http.get("/?window=6h", headers=live)
        assert len(looks) == 2
        http.get("/")
        assert len(looks) == 3  # somebody who loads the page sees what is there now


def test_those_who_ask_while_a_page_is_made_wait_for_it() -> None:
    snapshots, made = Snapshots(), []
    begun, go_on = threading.Event(), threading.Event()

    def make() -> str:
        begun.set()
        go_on.wait(10)
        made.append(1)
        return "page"

    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(snapshots.get("k", make))) for _ in range(5)]
    for one in threads:
        one.start()
    begun.wait(10)
    go_on.set()
    for one in threads:
        one.join()
    assert found == ["page"] * 5 and made == [1]
    with pytest.raises(ZeroDivisionError):
        snapshots.get("other", lambda: str(1 // 0))
    assert snapshots.get("other", lambda: "fine") == "fine"


@pytest.mark.shows("O11")
def test_a_service_that_stops_does_not_wait_for_its_listeners(lite: penstock.Log) -> None:
    with serving(lite, NoAuth()) as service:
        client = httpx.Client(base_url=service.url, timeout=30)
        with client.stream("GET", "/-/events") as answer:
            lines = answer.iter_lines()
            next(lines)
            service.server.stop()
            ended = [*lines]  # at once, and not after its twenty seconds
            assert all(not line.startswith("data: events") for line in ended)
        client.close()
