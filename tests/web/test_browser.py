"""The dashboard in a real Chromium: readable for everybody, live, by keyboard, on a phone, in light and dark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

import penstock
from penstock.http.auth import NoAuth
from tests.support.browser import PHONE, WIDE, Looker
from tests.support.furnished import GROUP, STREAM, furnish, past
from tests.support.http_service import Service, serving
from tests.support.waiting import wait_until
from tests.support.web_pages import addresses

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WRITE = os.environ.get("PENSTOCK_WRITE_SCREENSHOTS") == "1"
BAD = ("serious", "critical")
NAMES = {"/": "overview", "/s/{stream}": "stream", "/s/{stream}/g/{group}": "group", "/e/{which}": "event"}
KEPT = ("overview-light", "overview-dark", "overview-phone", "group-light", "dead-dark", "event-light", "jobs-light")


AXE = Axe()
COLOURS = {"runOnly": ["color-contrast"]}
SHAPES = {"rules": {"color-contrast": {"enabled": False}}}
RULES: dict[str, Any] = {"light": None, "dark": COLOURS, "phone": SHAPES}  # what differs from light


def faults(page: Page, options: dict[str, Any] | None = None) -> list[tuple[str, str, str]]:
    """What axe-core finds wrong on a page."""
    found = AXE.run(page, options={"resultTypes": ["violations"], **(options or {})}).response["violations"]
    return [(one["id"], one["help"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in BAD]


def name_of(path: str) -> str:
    return NAMES.get(path) or path.strip("/").split("/")[-1].strip("{}") or "overview"


@pytest.mark.shows("O02", "O13")
@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_every_page_is_accessible(lite_site: Service, looker: Looker, look: str) -> None:
    """And nothing on it violates the policy: the looker listens to the console."""
    facts = furnish(lite_site.log)
    past(lite_site.log)
    scheme: Any = "dark" if look == "dark" else "light"
    options = {"viewport": PHONE if look == "phone" else WIDE, "color_scheme": scheme, "base_url": lite_site.url}
    page = looker.page(**options)
    for path, address in addresses(facts).items():
        page.goto(address)
        expect(page.locator("#lamp")).not_to_have_text("joining")
        if look == "phone":
            wide = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
            assert not wide, f"{path} is wider than a phone"
        assert faults(page, RULES[look]) == [], path
        if WRITE and (name := f"{name_of(path)}-{look}") in KEPT:
            page.screenshot(path=IMAGES / f"dashboard-{name}.png")


@pytest.mark.shows("O02")
def test_pages_follow_the_log_without_a_reload(lite_site: Service, looker: Looker) -> None:
    log = lite_site.log
    log.create_group(STREAM, GROUP)
    log.append(STREAM, 1, type="t")
    page = looker.page(base_url=lite_site.url)
    page.goto("/")
    expect(page.locator("#lamp")).to_have_text("live")
    page.evaluate("window.stayed = true")
    lag = page.locator("#groups tbody tr td[data-label=lag]")
    expect(lag).to_have_text("1")
    log.append_many(STREAM, [{"payload": n, "type": "t"} for n in range(41)])
    expect(lag).to_have_text("42")
    log.pause(STREAM, GROUP, reason="deploying")
    expect(page.locator("#problems")).to_contain_text("deploying")
    assert page.evaluate("window.stayed")
    events = looker.page(base_url=lite_site.url)
    events.goto(f"/s/{STREAM}")
    expect(events.locator("#lamp")).to_have_text("live")
    log.append_many(STREAM, [{"payload": n, "type": "t"} for n in range(12)])
    pill = events.locator("#events .new")
    expect(pill).to_have_text("12 new ▴")  # rows do not move under the cursor
    assert events.locator("#events tbody tr").first.get_attribute("data-row") == "42"
    pill.click()
    expect(events.locator("#events tbody tr").first).to_have_attribute("data-row", "54")


@pytest.mark.shows("O11")
def test_all_tabs_of_a_browser_share_one_stream(lite_site: Service, looker: Looker) -> None:
    log, live = lite_site.log, lite_site.app.state.live
    log.create_group(STREAM, GROUP)
    log.append(STREAM, 1, type="t")
    first = looker.page(base_url=lite_site.url)
    first.goto("/")
    expect(first.locator("#lamp")).to_have_text("live")
    tabs = [looker.watched(first.context.new_page()) for _ in range(2)]
    for tab in tabs:
        tab.goto(f"/s/{STREAM}/g/{GROUP}")
        expect(tab.locator("#lamp")).to_have_text("live")
    assert live.listeners == 1
    log.append(STREAM, 2, type="t")
    for tab in tabs:
        expect(tab.locator("#state")).to_contain_text("2")
    first.close()  # another tab takes over
    wait_until(lambda: live.listeners == 1, "one of the others to listen", 10)
    log.append(STREAM, 3, type="t")
    expect(tabs[0].locator("#state dd").nth(1)).to_have_text("3")


@pytest.mark.shows("O02")
def test_the_keyboard_goes_everywhere(lite_site: Service, looker: Looker) -> None:
    furnish(lite_site.log)
    page = looker.page(base_url=lite_site.url)
    page.goto("/")
    keys = page.keyboard
    keys.press("g")
    keys.press("s")
    expect(page).to_have_url(f"{lite_site.url}/system")
    keys.press("g")
    keys.press("o")
    expect(page.locator("h1")).to_have_text("Overview")
    keys.press("?")
    expect(page.locator("#help")).to_be_visible()
    keys.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    keys.press("j")
    keys.press("j")
    keys.press("j")
    expect(page.locator(".chosen")).to_have_attribute("data-row", f"{STREAM}/{GROUP}")
    keys.press("k")
    keys.press("j")
    keys.press(".")
    dialog = page.locator("#dialog")
    expect(dialog).to_contain_text("Pause a group")
    keys.press("Escape")
    expect(dialog).to_be_hidden()
    keys.press("/")
    expect(page.locator("#search")).to_be_focused()
    keys.type("c-3")
    keys.press("Enter")
    expect(page.locator("h1")).to_have_text("Search")
    expect(page.locator("tbody tr").first).to_contain_text("c-3")
    keys.press("t")
    theme = page.evaluate("document.documentElement.dataset.theme")
    keys.press("t")
    assert {theme, page.evaluate("document.documentElement.dataset.theme")} == {"light", "dark"}


@pytest.mark.shows("O02")
def test_an_action_goes_through_its_dialog(lite_site: Service, looker: Looker) -> None:
    log = lite_site.log
    log.create_group(STREAM, GROUP)
    log.append_many(STREAM, [{"payload": n, "type": "t"} for n in range(1_500)])
    while lease := log.claim(STREAM, GROUP, limit=1_000, claimed_by="w"):
        lease.settle()
    page = looker.page(base_url=lite_site.url)
    page.goto(f"/s/{STREAM}/g/{GROUP}?window=6h")
    page.get_by_role("link", name="Rewind…").click()
    dialog = page.locator("#dialog")
    dialog.get_by_label("To").fill("beginning")
    dialog.get_by_role("button", name="Dry run").click()
    expect(dialog.locator("#plan")).to_contain_text("1,500 deliveries above beginning are done again.")
    assert faults(page) == []
    dialog.get_by_label("Reason").fill("the handler was wrong")
    dialog.get_by_label("More than 1,000").fill("frau")
    dialog.get_by_role("button", name="Rewind").click()
    expect(page.locator(".wrong")).to_contain_text("Type the name of the group")
    looker.complaints.clear()  # a 422 is said on the console
    page.get_by_label("Reason").fill("the handler was wrong")
    page.get_by_label("More than 1,000").fill(GROUP)
    page.get_by_role("button", name="Rewind", exact=True).click()
    expect(page.locator(".said")).to_contain_text("1,500 deliveries are done again")
    expect(page).to_have_url(f"{lite_site.url}/ops/1")  # a reload does not say it again
    assert log.get_operation(1).run(timeout=30).ended
    assert log.stats(STREAM, GROUP).groups[0].pending == 1_500


@pytest.mark.shows("X09", "O13")
def test_people_sign_in_and_out(lite: penstock.Log, looker: Looker) -> None:
    furnish(lite)
    with serving(lite) as service:
        page = looker.page(base_url=service.url)
        page.goto(f"/s/{STREAM}")
        expect(page).to_have_title("Sign in · Penstock")
        assert faults(page) == []
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("unknown")
        looker.complaints.clear()  # a 401 is said on the console
        secret = service.token("read", "payload", name="ada")
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("h1")).to_have_text(STREAM)
        expect(page.locator("#lamp")).to_have_text("live")
        (cookie,) = page.context.cookies()
        assert cookie["name"].startswith("__Host-penstock") and cookie["httpOnly"] and secret not in cookie["value"]
        assert page.evaluate("document.cookie + JSON.stringify(localStorage)").find(secret) == -1
        page.locator(".who summary").click()
        page.get_by_role("button", name="Sign out").click()
        expect(page).to_have_title("Sign in · Penstock")
        page.goto("/")
        expect(page).to_have_title("Sign in · Penstock")


@pytest.mark.shows("X09")
def test_hostile_text_stays_text_in_the_browser(lite: penstock.Log, looker: Looker) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\">"
    lite.create_group(STREAM, GROUP, ordering="key", on_dead="halt")
    lite.append(STREAM, {"x": evil, "big": 2**63 - 1}, type="t", ordering_key=evil)
    lease = lite.claim(STREAM, GROUP, limit=1, claimed_by=evil)
    assert lease is not None
    lease.settle(dead={lease.events[0].event_id: evil})
    lite.pause(STREAM, GROUP, reason=evil, by=evil)
    with serving(lite, NoAuth()) as service:
        page = looker.page(base_url=service.url)
        for path in ("/", f"/s/{STREAM}", f"/s/{STREAM}/g/{GROUP}", "/system", "/search?q=img"):
            page.goto(path)
            expect(page.locator("body")).to_contain_text("<img src=x")
            assert page.evaluate("document.querySelectorAll('img[src=x]').length") == 0 and "owned" not in page.title()
        page.goto(f"/s/{STREAM}")
        expect(page.locator("#events")).to_contain_text(str(2**63 - 1))
