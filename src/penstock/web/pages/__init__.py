"""The pages, one module each, and everything that can be done from them."""

from typing import NamedTuple

from penstock.web.actions import Action
from penstock.web.page import Download, Page
from penstock.web.pages import (
    dead,
    dead_actions,
    event,
    event_actions,
    group,
    job_actions,
    jobs,
    operations,
    overview,
    stream,
    system,
)

_MODULES = (overview, stream, group, dead, operations, event, jobs, system)
PAGES: tuple[Page, ...] = tuple(page for module in _MODULES for page in module.PAGES)
_ACTING = (overview, stream, group, dead_actions, operations, event_actions, job_actions, system)
ACTIONS: dict[str, Action] = {action.name: action for module in _ACTING for action in module.ACTIONS}
DOWNLOADS: tuple[Download, ...] = (*event.DOWNLOADS, *dead.DOWNLOADS)


class Entry(NamedTuple):
    """An entry of the menu; `g` and its key go there."""

    id: str  # as pages name it in `nav`
    title: str
    path: str
    key: str


_MENU = (
    Entry("overview", "Overview", "/", "o"),
    Entry("jobs", "Jobs", "/jobs", "j"),
    Entry("operations", "Operations", "/ops", "p"),
    Entry("system", "System", "/system", "s"),
)
MENU = tuple(entry for entry in _MENU if any(page.path == entry.path for page in PAGES))
