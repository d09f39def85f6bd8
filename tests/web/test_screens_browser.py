"""Dead letters, operations, events and jobs in a real Chromium, with a real engine at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import penstock
from penstock.engine.local.engine import LocalEngine
from tests.support.browser import PHONE, Looker
from tests.support.declarations import subscription
from tests.support.http_service import Service
from tests.support.waiting import wait_until
from tests.web.test_browser import faults

ONCE = penstock.Retry(max_attempts=1)
QUICK: Any = {"group": "fraud", "isolation": "inline", "retry": ONCE}
SLOWEST = 20_000  # milliseconds that an operation may take


def screen(event: penstock.Event) -> None:
    """A handler that fails as long as nobody has deployed the fix."""
    if not screen.__dict__.get("fixed"):
        raise KeyError("score")


@pytest.fixture
def deploy() -> Iterator[Callable[[], None]]:
    """Mend the handler."""
    yield lambda: screen.__dict__.update(fixed=True)
    screen.__dict__.pop("fixed", None)


@contextmanager
def at_work(log: penstock.Log) -> Iterator[None]:
    """An engine that runs, with its maintenance."""
    engine = LocalEngine(log, [subscription(screen, **QUICK)])
    engine.start()
    try:
        yield
    finally:
        engine.stop()


def die(log: penstock.Log, count: int) -> None:
    """Let so many events fail for good, in the handler itself."""
    log.create_group("orders", "fraud", retry=ONCE)
    log.append_many("orders", [{"payload": {"n": n}, "type": "order.created"} for n in range(count)])
    lease = log.claim("orders", "fraud", limit=count, claimed_by="w-1")
    assert lease is not None
    errors = {}
    for event in lease.events:
        try:
            screen(event)
        except KeyError as error:
            errors[event.event_id] = error
    lease.settle(failed=errors)


def open_redrive(page: Page) -> None:
    page.goto("/s/orders/g/fraud/dead")
    page.locator("#kinds tbody tr").first.get_by_role("checkbox").check()
    expect(page.locator("[data-count]")).to_have_text("1 of 1 ticked")
    page.locator(".kinds-bar").get_by_role("button", name="Redrive").click()
    expect(page.locator("#dialog #plan")).to_contain_text("dead letters go back to PENDING")


def start(page: Page, canary: str, stop: str = "1") -> None:
    dialog = page.locator("#dialog")
    dialog.get_by_label("Canaries first").fill(canary)
    dialog.get_by_label("Then a second").fill("")
    dialog.get_by_label("Stop if back").fill(stop)
    dialog.get_by_role("button", name="Dry run").click()
    expect(dialog.locator("#plan")).to_contain_text(f"First {canary} of them as canaries")
    dialog.get_by_label("Reason").fill("fixed in 4.2")
    dialog.get_by_role("button", name="Start").click()


@pytest.mark.shows("O02", "O04")
def test_a_redrive_goes_from_the_page_through_its_canaries_to_the_end(
    lite_site: Service, looker: Looker, deploy: Callable[[], None]
) -> None:
    log = lite_site.log
    die(log, 12)
    deploy()
    page = looker.page(base_url=lite_site.url)
    open_redrive(page)
    expect(page.locator("#plan")).to_contain_text("12 dead letters")
    start(page, "3")
    expect(page).to_have_url(f"{lite_site.url}/ops/1")
    expect(page.locator(".said")).to_contain_text("The operation is stored, and runs.")
    expect(page.locator("#lamp")).to_have_text("live")
    page.evaluate("window.stayed = true")
    with at_work(log):
        expect(page.locator("#op-state")).to_contain_text("done", timeout=SLOWEST)
        expect(page.locator("#op-state")).to_contain_text("12 of 12")
        expect(page.locator("#op-state")).to_contain_text("3 of 3")
        assert page.evaluate("window.stayed")  # all of it live
        wait_until(lambda: log.stats("orders", "fraud").groups[0].published == 12, "all to be published")
    (one,) = log.operations()
    assert (one.state, one.moved, one.returned, one.reason) == ("done", 12, 0, "fixed in 4.2")
    page.goto("/s/orders/g/fraud/dead")
    expect(page.locator(".empty-state")).to_contain_text("None since")
    expect(page.locator("#runs")).to_contain_text("op #1")
    page.goto("/e/1")
    marks = page.locator(".life-lanes text")
    for text in ("KeyError DEAD", "redrive op #1", "PUBLISHED"):
        expect(marks.filter(has_text=text)).to_have_count(1)
    assert page.locator(".life-lanes title").count() >= 5
    page.locator(".trace summary").first.click()
    expect(page.locator(".trace pre").first).to_contain_text("in screen")
    assert faults(page) == []


@pytest.mark.shows("O04")
def test_a_redrive_stops_when_the_error_returns(lite_site: Service, looker: Looker) -> None:
    log = lite_site.log
    die(log, 12)
    page = looker.page(base_url=lite_site.url)
    open_redrive(page)
    start(page, "2")
    expect(page.locator("#lamp")).to_have_text("live")
    with at_work(log):
        expect(page.locator("#op-state")).to_contain_text("stopped", timeout=SLOWEST)
    expect(page.locator("#op-state")).to_contain_text("came back with the error they had")
    expect(page.locator("#back")).to_contain_text("KeyError", timeout=SLOWEST)
    (one,) = log.operations()
    assert (one.state, one.moved) == ("stopped", 2) and one.returned >= 1
    page.locator("#back a").first.click()
    expect(page.locator(".life-lanes")).to_contain_text("redrive op #1")


@pytest.mark.shows("O04")
def test_of_two_browsers_with_the_same_plan_one_wins(lite_site: Service, looker: Looker) -> None:
    log = lite_site.log
    die(log, 4)
    pages = [looker.page(base_url=lite_site.url) for _ in range(2)]
    for page in pages:
        open_redrive(page)
        page.locator("#dialog").get_by_label("Reason").fill("fixed")
    for page in pages:
        page.locator("#dialog").get_by_role("button", name="Start").click()
    expect(pages[0]).to_have_url(f"{lite_site.url}/ops/1")
    expect(pages[1].get_by_role("alert")).to_contain_text("Operation 1 does the same, and has not ended")
    expect(pages[1].get_by_role("alert")).to_contain_text("look at it, and start again")
    looker.complaints.clear()  # a 422 is said on the console
    assert len(log.operations()) == 1
    pages[0].get_by_role("link", name="Pause").click()
    pages[0].locator("#dialog").get_by_role("button", name="Pause").click()
    expect(pages[0].locator("#op-state")).to_contain_text("paused")
    pages[0].get_by_role("link", name="Abort").click()
    pages[0].locator("#dialog").get_by_role("button", name="Abort").click()
    expect(pages[0].locator("#op-state")).to_contain_text("aborted")
    assert log.operations()[0].state == "aborted"


@pytest.mark.shows("O02", "O14")
def test_the_keyboard_and_a_mended_payload(lite_site: Service, looker: Looker) -> None:
    log = lite_site.log
    log.create_group("orders", "fraud")
    log.append("orders", b'{"id": 12345678901234567890, "a": 1}', type="t", content_type="application/json")
    log.append("orders", {"n": 2}, type="t")
    lease = log.claim("orders", "fraud", claimed_by="w")
    assert lease is not None
    errors = (ValueError("bad"), KeyError("x"))
    lease.settle(dead={event.event_id: error for event, error in zip(lease.events, errors, strict=True)})
    page = looker.page(base_url=lite_site.url)
    page.goto("/s/orders/g/fraud/dead")
    keys, dialog = page.keyboard, page.locator("#dialog")
    keys.press("j")
    keys.press("x")
    expect(page.locator("[data-count]")).to_have_text("1 of 2 ticked")
    keys.press(".")
    expect(dialog).to_contain_text("Redrive dead letters")
    expect(dialog.get_by_label("Canaries first")).to_be_focused()
    keys.press("Escape")
    expect(dialog).to_be_hidden()
    page.get_by_label("all kinds of errors").check()
    expect(page.locator("[data-count]")).to_have_text("2 of 2 ticked")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    assert download.value.path().read_text().count("\n") == 2
    page.goto("/e/1")
    page.get_by_role("link", name="Mend").click()
    payload = dialog.get_by_label("Payload")
    expect(payload).to_have_value('{"id": 12345678901234567890, "a": 1}')
    payload.fill('{"id": 12345678901234567891, "a": 2}')
    dialog.get_by_role("button", name="Dry run").click()
    expect(dialog.locator("#plan")).to_contain_text("takes the place of the dead letter")
    dialog.get_by_label("Reason").fill("a typo")
    dialog.get_by_role("button", name="Append").click()
    expect(page.locator(".said")).to_contain_text("takes the place")
    expect(page.locator("#payload")).to_contain_text("12345678901234567891")
    assert log.read("orders", after=2)[0].payload == b'{"id": 12345678901234567891, "a": 2}'


@pytest.mark.shows("O02")
def test_jobs_are_submitted_and_watched_on_a_phone(lite_site: Service, looker: Looker) -> None:
    log = lite_site.log
    page = looker.page(base_url=lite_site.url, viewport=PHONE)
    page.goto("/jobs")
    page.get_by_role("link", name="Submit a job").click()
    dialog = page.locator("#dialog")
    dialog.get_by_label("Type").fill("email:send")
    dialog.get_by_role("button", name="Dry run").click()
    expect(dialog.locator("#plan")).to_contain_text("One job of the type email:send")
    assert faults(page) == []
    dialog.get_by_role("button", name="Submit").click()
    expect(page.locator("h1")).to_contain_text("email:send")
    expect(page.locator("#lamp")).to_have_text("live")
    job = log.claim_job("worker-1")
    assert job is not None
    log.heartbeat(job.id, "worker-1", token=job.token, progress=0.4, message="page 4 of 10")
    page.reload()
    expect(page.locator("#job")).to_contain_text("40%")
    expect(page.locator("#lamp")).to_have_text("live")
    log.complete_job(job.id, "worker-1", token=job.token, result={"big": 2**62})
    expect(page.locator("#job")).to_contain_text(str(2**62), timeout=SLOWEST)
    assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    page.goto("/jobs?state=PUBLISHED")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    expect(page.locator("#jobs tbody tr")).to_contain_text("PUBLISHED")
