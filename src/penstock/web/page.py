"""What a page and a panel are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.core.access import READ

if TYPE_CHECKING:
    from penstock.web.view import View

Model = dict[str, Any]  # what a template is given
Build = Callable[["View"], Model]


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its path, its template, and the function that reads the log for it.

    `scope` is needed for some stream; `build` looks closer. When one of the `topics` has changed, viewers fetch the
    page again, and its live panels are replaced.
    """

    path: str
    template: str
    build: Build
    scope: str = READ
    topics: tuple[str, ...] = ()
    nav: str = ""  # the entry of the menu that is marked


@dataclass(frozen=True, slots=True)
class File:
    """Something to be saved. Browsers never show it, whatever is in it."""

    name: str
    kind: str  # its media type
    pieces: Iterable[bytes]


@dataclass(frozen=True, slots=True)
class Download:
    """An address that gives a file. `scope` is needed for some stream; `build` looks closer."""

    path: str
    build: Callable[[View], File]
    scope: str = READ


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of a page with a headline, and how to get the same numbers without the page."""

    id: str
    title: str
    sql: str | None = None
    curl: str | None = None
    live: bool = True
    about: str = ""  # a sentence under the headline


def by_id(*panels: Panel) -> SimpleNamespace:
    """Return panels by their ids, as templates name them: `panels.groups`."""
    return SimpleNamespace(**{one.id: one for one in panels})
