"""Chromium, one for a whole test run, driven by Playwright's synchronous API.

That API leaves its event loop marked as running. Between tests the mark is taken off, so that other tests may run
loops of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
)
_PATIENCE_MS = 20_000
WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}


class Chromium:
    """A browser that is started when the first test needs it."""

    def __init__(self) -> None:
        self._playwright: Any = None
        self._browser: Browser | None = None
        self._loop: Any = None

    @contextmanager
    def at_work(self) -> Iterator[Browser]:
        """The browser, for one test."""
        asyncio._set_running_loop(self._loop)
        try:
            if self._browser is None:
                self._playwright = sync_playwright().start()
                self._browser = self._playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
            yield self._browser
        finally:
            self._loop = asyncio._get_running_loop()
            asyncio._set_running_loop(None)

    def close(self) -> None:
        if self._browser is not None:
            asyncio._set_running_loop(self._loop)
            self._browser.close()
            self._playwright.stop()
            asyncio._set_running_loop(None)


class Looker:
    """Opens pages, each in a profile of its own, and remembers what they complained about."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.complaints: list[str] = []  # errors on the console, exceptions, refused loads; a test may clear it

    def page(self, **options: Any) -> Page:
        """A new page: `viewport`, `color_scheme`, `base_url` and whatever else Playwright takes."""
        context = self._browser.new_context(**{"viewport": WIDE, **options})
        context.set_default_timeout(_PATIENCE_MS)
        expect.set_options(timeout=_PATIENCE_MS)
        return self.watched(context.new_page())

    def watched(self, page: Page) -> Page:
        """Listen to the console: a violation of the Content-Security-Policy is said there."""
        page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return page

    def close(self) -> None:
        for context in self._browser.contexts:
            context.close()
