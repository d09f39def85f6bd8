"""The application: its pages, actions and files behind one guard, wherever it is mounted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from penstock.core.access import Access
from penstock.errors import (
    Forbidden,
    InternalError,
    InvalidInput,
    MethodNotAllowed,
    NotFound,
    PenstockError,
    StoreUnavailable,
)
from penstock.log.log import Log
from penstock.web import live as live_updates
from penstock.web import login
from penstock.web.actions import Ask, Plan, asked, joined, needs_typing
from penstock.web.forms import form_of
from penstock.web.guard import LOGIN, Authorize, Guard, allowed
from penstock.web.live import Live
from penstock.web.login import SignIn
from penstock.web.page import Download, Page
from penstock.web.pages import ACTIONS, DOWNLOADS, MENU, PAGES
from penstock.web.render import render
from penstock.web.snapshots import Snapshots
from penstock.web.view import WINDOWS, View

logger = logging.getLogger("penstock")
_API: Final = "http://127.0.0.1:8787"  # where `penstock serve` listens if nobody says otherwise
_STATUS: Final = {
    **dict.fromkeys(("forbidden", "cross_site", "permission_denied"), 403),
    "not_found": 404,
    **{"malformed_body": 400, "unauthorized": 401, "method_not_allowed": 405, "pruned": 410, "too_large": 413},
    **{"unsupported_media_type": 415, "internal_error": 500},
    **dict.fromkeys(("store_busy", "store_closed", "store_read_only", "on_standby", "schema_missing"), 503),
}


def asgi(
    log: Log,
    authorize: Authorize | None = None,
    *,
    sign_in: SignIn | None = None,
    live: Live | None = None,
    api_url: str | None = None,
) -> Starlette:
    """Make the dashboard of an open log, to be mounted under any path of a FastAPI, Starlette or Django application.

    `authorize` gets the request and returns who asks and what they may do, a `penstock.core.access.Access`, or None
    for nobody, who sees a 403 page; it may be async. Without it nobody gets in. `sign_in` shows a login page instead;
    `penstock serve` brings one. `api_url` is where `penstock serve` answers, for the curl commands on the pages.
    """
    site = _Site(log, authorize, sign_in, live or Live(log), api_url)
    routes: list[BaseRoute] = [Mount("/-/static", StaticFiles(packages=[("penstock.web", "static")]))]
    routes += [Route("/-/events", site.events), Route("/-/act/{action}", site.act, methods=["GET", "POST"])]
    if sign_in is not None:
        routes += [Route(LOGIN, site.login, methods=["GET", "POST"]), Route("/logout", site.logout, methods=["POST"])]
    routes += [Route(page.path, site.page(page)) for page in PAGES]
    routes += [Route(one.path, site.download(one)) for one in DOWNLOADS]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, authorize=authorize, failed=site.failed)],
        exception_handlers={PenstockError: site.failed, HTTPException: site.failed},
    )
    app.router.redirect_slashes = False
    app.state.live = site.live
    return app


class _Site:
    """What the endpoints share."""

    def __init__(
        self, log: Log, authorize: Authorize | None, sign_in: SignIn | None, live: Live, api_url: str | None
    ) -> None:
        self.log = log
        self.live = live
        self._authorize = authorize
        self._sign_in = sign_in
        self._api_url = api_url
        self._snapshots = Snapshots()

    # --- endpoints -----------------------------------------------------------------------------------------------

    def page(self, page: Page) -> Callable[[Request], Any]:
        """Return the endpoint of a page."""

        async def endpoint(request: Request) -> Response:
            view = self._enter(request)
            if isinstance(view, Response):
                return view
            if not view.access.may_somewhere(page.scope):
                raise Forbidden(f"{view.access.name!r} does not have the scope {page.scope!r}.")
            again = request.headers.get("hx-trigger") == "live"
            return HTMLResponse(await run_in_threadpool(self._html, page, view, again))

        return endpoint

    def download(self, one: Download) -> Callable[[Request], Any]:
        """Return the endpoint of a file."""

        async def endpoint(request: Request) -> Response:
            view = self._enter(request)
            if isinstance(view, Response):
                return view
            if not view.access.may_somewhere(one.scope):
                raise Forbidden(f"{view.access.name!r} does not have the scope {one.scope!r}.")
            file = await run_in_threadpool(one.build, view)
            headers = {"content-disposition": f'attachment; filename="{file.name}"'}
            return StreamingResponse(file.pieces, media_type=file.kind, headers=headers)

        return endpoint

    async def events(self, request: Request) -> Response:
        """Stream the names of what has changed."""
        if request.state.access is None:
            return Response(status_code=401)

        async def still_allowed() -> bool:
            return await allowed(self._authorize, request) is not None

        return live_updates.stream(self.live, request, still_allowed)

    async def act(self, request: Request) -> Response:
        """Show the dialog of an action, or do it."""
        view = self._enter(request)
        if isinstance(view, Response):
            return view
        action = ACTIONS.get(request.path_params["action"])
        if action is None:
            raise NotFound(f"There is no action {request.path_params['action'][:60]!r}.")
        posted = request.method == "POST"
        sent: Mapping[str, str] = await form_of(request) if posted else joined(request.query_params.multi_items())
        ask = asked(view, action, sent, fresh=not posted)
        ask.check_rights()
        if posted and not ask.text("dry_run"):
            return await run_in_threadpool(self._do, ask)
        if not posted and action.fill is not None:
            ask = asked(view, action, {**await run_in_threadpool(action.fill, ask), **ask.values}, fresh=True)
        return HTMLResponse(await run_in_threadpool(self._dialog, ask, None))

    async def login(self, request: Request) -> Response:
        """Show the form, or exchange a token for a cookie."""
        assert self._sign_in is not None
        root = str(request.scope.get("root_path", "")).rstrip("/")
        if request.method != "POST":
            to = login.local(request.query_params.get("next", ""), root)
            if request.state.access is not None:
                return RedirectResponse(to, 303)
            return HTMLResponse(self._plain(request, "login.html", to=to, wrong=False))
        if request.state.refused is not None:
            raise request.state.refused
        form = await form_of(request)
        to = login.local(form.get("next", ""), root)
        session = await run_in_threadpool(self._sign_in.enter, form.get("token", "").strip())
        if session is None:
            return HTMLResponse(self._plain(request, "login.html", to=to, wrong=True), 401)
        return login.entered(request, session, self._sign_in.seconds, to)

    async def logout(self, request: Request) -> Response:
        """End the session."""
        if request.state.refused is not None:
            raise request.state.refused
        session = login.session_of(request)
        if session is not None and self._sign_in is not None:
            await run_in_threadpool(self._sign_in.leave, session)
        return login.left(request, f"{str(request.scope.get('root_path', '')).rstrip('/')}{LOGIN}")

    async def failed(self, request: Request, error: Exception) -> Response:
        """Answer with a page that says what is wrong and what to do."""
        known = _known(request, error)
        status = status_of(known)
        said = type(known)().message if status in (500, 503) else known.message  # which may name the database
        if status >= 500:
            logger.error("web: %s", type(error).__name__, exc_info=error)
        if "hx-request" in request.headers and request.headers.get("hx-target") == "dialog":
            body = render("failed_dialog.html", error=known, said=said)
            return HTMLResponse(body, 200)  # htmx shows only what went well
        return HTMLResponse(self._plain(request, "failed.html", error=known, said=said, status=status), status)

    # --- what they share -----------------------------------------------------------------------------------------

    def _enter(self, request: Request) -> View | Response:
        """Return the view of whoever may look; else the way to the door."""
        if request.state.refused is not None:
            raise request.state.refused
        access: Access | None = request.state.access
        if access is not None:
            return View(request, self.log, access, self._api(request), dict(request.path_params))
        if self._sign_in is None:
            raise Forbidden("You are not allowed to see this log.")
        root = str(request.scope.get("root_path", "")).rstrip("/")
        here = root + request.scope["route_path"] + (f"?{request.url.query}" if request.url.query else "")
        headers = request.headers
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") == "navigate":
            # A link of another site: the browser has kept the cookie to itself, and sends it when this page asks.
            return HTMLResponse(render("again.html", here=login.local(here, root)))
        to = f"{root}{LOGIN}?{urlencode({'next': here})}"
        if "hx-request" in headers:
            return Response(status_code=401, headers={"HX-Redirect": to})
        return RedirectResponse(to, 303)

    def _api(self, request: Request) -> str:
        if self._api_url is None:
            return _API
        return (self._api_url or f"{request.url.scheme}://{request.url.netloc}").rstrip("/")

    def _html(self, page: Page, view: View, again: bool) -> str:
        if not again:
            return self._made(page, view, "frame.html")
        asked_for = tuple(sorted(view.request.query_params.multi_items()))
        where = (view.root, view.request.url.path, view.api)  # of which links and commands are made
        key = (where, asked_for, view.access.grants)
        return self._snapshots.get(key, lambda: self._made(page, view, "bare.html"))

    def _made(self, page: Page, view: View, layout: str) -> str:
        model = page.build(view)
        return render(page.template, layout=layout, page=page, **self._common(view), **model)

    def _common(self, view: View) -> dict[str, Any]:
        did = ACTIONS.get(view.text("did"))
        n = view.text("n")
        done = None if did is None else did.done.format(n=f"{int(n):,}" if n.isdecimal() and len(n) < 19 else "")
        now = datetime.now(UTC)
        frame = {"root": view.root, "nav": MENU, "windows": WINDOWS, "signed_in": self._sign_in is not None}
        return {"view": view, "now": now, "done": done, "seen": self.live.number, **frame}

    def _plain(self, request: Request, template: str, **given: Any) -> str:
        root = str(request.scope.get("root_path", "")).rstrip("/")
        return render(template, root=root, access=getattr(request.state, "access", None), **given)

    # --- actions -------------------------------------------------------------------------------------------------

    def _dialog(self, ask: Ask, wrong: str | None) -> str:
        plan: Plan | None = None
        if ask.complete:
            try:
                plan = ask.action.plan(ask)
            except InvalidInput as error:
                wrong = wrong or error.message
        bare = ask.view.request.headers.get("hx-target") == "dialog"
        given = {
            "layout": "bare.html" if bare else "frame.html",
            "ask": ask,
            "plan": plan,
            "wrong": wrong,
            "typing": needs_typing(plan),
            "page": Page("/-/act", "action.html", lambda _: {}),
            "title": ask.action.title,
            "back": login.local(ask.values.get("back", ""), ask.view.root),
        }
        return render("action.html", **self._common(ask.view), **given)

    def _do(self, ask: Ask) -> Response:
        plan = ask.action.plan(ask)
        try:
            ask.check(plan)
            done = ask.action.run(ask)
        except InvalidInput as error:
            return HTMLResponse(self._dialog(ask, error.message), 422)
        view, back = ask.view, login.local(ask.values.get("back", ""), ask.view.root)
        to = back if done.to is None else view.url(*done.to)
        count = "" if done.count is None else f"&n={done.count}"
        return RedirectResponse(f"{to}{'&' if '?' in to else '?'}did={ask.action.name}{count}", 303)


def status_of(error: PenstockError) -> int:
    """Return the status with which an error is answered."""
    if isinstance(error, StoreUnavailable):
        return 503
    if error.code.startswith("unknown_"):
        return 404
    return _STATUS.get(error.code, 422 if isinstance(error, InvalidInput) else 409)


def _known(request: Request, error: Exception) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, HTTPException) and error.status_code == 405:
        return MethodNotAllowed(f"{request.url.path[:200]} does not take {request.method}.")
    if isinstance(error, HTTPException) and error.status_code < 500:
        return NotFound(f"There is nothing at {request.url.path[:200]}.")
    return InternalError()
