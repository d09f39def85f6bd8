"""The dashboard in other applications: under a path, with their users and rights."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

import penstock
from penstock.core.access import Access, parse_grants
from penstock.web import asgi
from tests.support import django_setup
from tests.support.browser import Looker
from tests.support.furnished import GROUP, STREAM, furnish
from tests.support.web_pages import addresses, shown
from tests.support.web_server import running

USERS = {"ada": ["admin"], "grace": [f"read:{STREAM}"]}


def authorize(request: Request) -> Access | None:
    """What an application may do: it knows its users by a cookie of its own."""
    user = request.cookies.get("user", "")
    return Access(user, parse_grants(USERS[user])) if user in USERS else None


def in_fastapi(pages: Any) -> Any:
    app = FastAPI()
    app.mount("/ops", pages)
    return app


def in_starlette(pages: Any) -> Any:
    return Starlette(routes=[Mount("/team", routes=[Mount("/ops", pages)])])


def in_django(pages: Any) -> Any:
    """As a project's asgi.py would do it."""
    django_setup.configure()
    from django.core.asgi import get_asgi_application

    django = get_asgi_application()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and (scope["path"] + "/").startswith("/ops/"):
            await pages({**scope, "root_path": "/ops"}, receive, send)
        else:
            await django(scope, receive, send)

    return application


@pytest.mark.shows("O13")
@pytest.mark.parametrize(
    ("mount", "root"),
    [(in_fastapi, "/ops"), (in_starlette, "/team/ops"), (in_django, "/ops")],
    ids=["fastapi", "starlette", "django"],
)
def test_it_is_mounted_under_any_path(lite: penstock.Log, mount: Callable[[Any], Any], root: str) -> None:
    facts = furnish(lite)
    with running(mount(asgi(lite, authorize))) as url, httpx.Client(base_url=url + root) as http:
        assert http.get("/").status_code == 403 and http.get("/-/events").status_code == 401
        assert "login" not in http.get("/").text
        for user in USERS:
            seen = httpx.Client(base_url=url + root, cookies={"user": user})
            for path, address in addresses(facts).items():
                answer = seen.get(address)
                assert answer.status_code == 200, (path, answer.text)
                links = re.findall(r'(?:href|src|action|hx-get)="([^"]*)"', answer.text)
                assert links and all(one.startswith((f"{root}/", "#")) for one in links), (path, links)
                assert all("http://127.0.0.1:8787/v1" in one for one in shown(answer.text, "curl").values())
            assert httpx.get(url + root, cookies={"user": user}, follow_redirects=True).status_code == 200
            style = re.search(r'rel="stylesheet" href="([^"]+)"', seen.get("/").text)
            assert style is not None and httpx.get(url + style[1]).headers["content-type"].startswith("text/css")
            seen.close()
        ada = httpx.Client(base_url=url + root, cookies={"user": "ada"}, headers={"Origin": url})
        form = {"stream": STREAM, "group": GROUP, "reason": "r", "back": f"{root}/s/{STREAM}"}
        paused = ada.post("/-/act/pause", data=form)
        assert paused.status_code == 303 and paused.headers["location"] == f"{root}/s/{STREAM}?did=pause"
        assert lite.audit(limit=1)[0].by == "ada"
        grace = httpx.Client(base_url=url + root, cookies={"user": "grace"}, headers={"Origin": url})
        assert grace.post("/-/act/pause", data=form).status_code == 403
        assert "payments" not in grace.get("/").text and "Rewind" not in grace.get(f"/s/{STREAM}/g/{GROUP}").text
        assert grace.get("/login").status_code == 404
        ada.close()
        grace.close()


@pytest.mark.shows("O13")
def test_without_authorize_nobody_gets_in(lite: penstock.Log) -> None:
    with running(in_fastapi(asgi(lite))) as url:
        refused = httpx.get(f"{url}/ops/")
        assert refused.status_code == 403 and "frame-ancestors 'none'" in refused.headers["content-security-policy"]


@pytest.mark.shows("O13")
def test_the_host_may_ask_its_users_asynchronously_and_break(lite: penstock.Log) -> None:
    async def asks(request: Request) -> Access | None:
        if "broken" in request.query_params:
            raise RuntimeError("secret words")
        return Access("ada", parse_grants(["read"]))

    with running(in_fastapi(asgi(lite, asks))) as url:
        assert httpx.get(f"{url}/ops/").status_code == 200
        broken = httpx.get(f"{url}/ops/?broken=1")
        assert broken.status_code == 500 and "secret words" not in broken.text and "internal_error" in broken.text


@pytest.mark.shows("O13")
def test_it_lives_in_a_browser_under_a_path(lite: penstock.Log, looker: Looker) -> None:
    from playwright.sync_api import expect

    lite.create_group(STREAM, GROUP)
    with running(in_starlette(asgi(lite, authorize))) as url:
        page = looker.page()
        page.context.add_cookies([{"name": "user", "value": "ada", "url": url}])
        page.goto(f"{url}/team/ops/s/{STREAM}/g/{GROUP}")
        expect(page.locator("#lamp")).to_have_text("live")
        lite.append(STREAM, 1, type="t")
        expect(page.locator("#state dd").nth(1)).to_have_text("1")
        page.get_by_role("link", name="Pause…").click()
        page.locator("#dialog").get_by_label("Reason").fill("deploying")
        page.locator("#dialog").get_by_role("button", name="Pause").click()
        expect(page.locator(".said")).to_contain_text("The group is paused.")
        page.close()
