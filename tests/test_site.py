"""The documentation site: it builds in strict mode, every page is in its navigation, and it needs no other host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.doc_pages import DOCS, ROOT

# Everything that a browser loads without being asked; links that a reader may follow are not meant.
_LOADED = re.compile(r"<(?:script|img|source|iframe)[^>]*\bsrc=\"([^\"]+)\"|<link[^>]*\bhref=\"([^\"]+)\"")


def pages_of(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        yield from pages_of(list(nav.values()))
    else:
        for one in nav:
            yield from pages_of(one)


def test_every_page_is_in_the_navigation_once() -> None:
    named = list(pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert len(named) == len({*named}), "a page stands in the navigation twice"
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert sorted(there - {*named}) == [], "add these pages to nav in mkdocs.yml"
    assert sorted(one for one in {*named} - there if "generated" not in one) == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")  # not with --quiet: what it does not say does not fail the build, either
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return place


@pytest.mark.shows("O09")
def test_the_site_builds_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len([*DOCS.rglob("*.md")])
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = [first or second for first, second in _LOADED.findall(text)]
        assert [one for one in loaded if re.match(r"(?:https?:)?//", one)] == [], page.name
        assert "```" not in re.sub(r"<pre.*?</pre>|<code.*?</code>", "", text, flags=re.DOTALL), page.name


@pytest.mark.shows("O09")
def test_the_reference_is_made_from_the_code(site: Path) -> None:
    import penstock
    from penstock.cli.app import root

    made = site / "reference" / "generated"
    python = (made / "python.html").read_text(encoding="utf-8")
    for name in ("open", "Log", "App", "Retry", "testing.Harness", "sinks.Table", "connect.Kafka"):
        assert f'id="penstock.{name}"' in python, name
    assert 'id="penstock.Log.append"' in python and "Store one event" in python
    help = (made / "cli.html").read_text(encoding="utf-8")
    assert all(f"penstock {one.name}" in help for one in root.registered_commands if one.name)
    assert "/v1/jobs/claim" in (made / "http.html").read_text(encoding="utf-8")
    assert "penstock_deliveries" in (made / "tables.html").read_text(encoding="utf-8")
    assert penstock.Log.append.__doc__
