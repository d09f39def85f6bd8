"""An address for every page of the dashboard, on a log that was furnished, and what pages say about themselves."""

from __future__ import annotations

import html
import re
from typing import Any

from penstock.web.pages import PAGES
from tests.support.furnished import GROUP, STREAM

_HOW = re.compile(r'<pre id="([\w-]+)-(sql|curl)"[^>]*>(.*?)</pre>', re.DOTALL)
_STREAMS = re.compile(r"^/s/\{stream\}")


def addresses(facts: dict[str, Any]) -> dict[str, str]:
    """A concrete address for the path of every page."""
    values = {"stream": STREAM, "group": GROUP, "event_id": facts["ids"][0], **facts.get("values", {})}
    found = {page.path: page.path.format(**values) for page in PAGES}
    found["/search"] += "?q=c-1"
    return found


def of_stream(path: str) -> bool:
    """Whether a page is about one stream."""
    return _STREAMS.match(path) is not None


def shown(page: str, what: str) -> dict[str, str]:
    """The SQL, or the curl, of every panel of a page."""
    return {panel: html.unescape(text) for panel, kind, text in _HOW.findall(page) if kind == what}
