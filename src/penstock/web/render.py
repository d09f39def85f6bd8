"""Templates: Jinja2 with everything escaped, and the words that all of them know."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from penstock.web import charts, words

_STATIC = "static"
_WORDS = (
    *("number", "counted", "rate", "span", "size", "moment", "ago", "state"),
    *("payload", "preview", "short", "middle", "told"),
)


@cache
def environment() -> Environment:
    """Return the templates of this package."""
    made = Environment(
        loader=PackageLoader("penstock.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    for name in _WORDS:
        made.filters[name] = getattr(words, name)
    made.globals.update(sparkline=charts.sparkline, chart=charts.chart, asset=asset)
    return made


def render(template: str, /, **given: Any) -> str:
    """Fill a template."""
    return environment().get_template(template).render(**given)


@cache
def asset(name: str) -> str:
    """Return the path of a file of `static/` with a mark of its content, so that browsers may keep it for good."""
    found: Traversable = files("penstock.web").joinpath(_STATIC)
    for part in name.split("/"):
        found = found.joinpath(part)
    return f"/-/static/{name}?v={hashlib.sha256(found.read_bytes()).hexdigest()[:12]}"
