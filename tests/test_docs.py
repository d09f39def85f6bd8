"""The documentation is right: its examples run, its links work, and nothing public is missing.

Every page runs in its own process and directory. Its ```python blocks share one namespace, and its ```console
blocks run through the command line, in the order of the page. A ```text output block is what the block
before it printed. A page with ```python postgres blocks gets the URL of an empty database in `url`. A block whose fence
names a file, as in ```python shop.py, is saved under that name and run as a script.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.doc_pages import DOCS, PAGES, ROOT, RUNS, SCRIPT, blocks, run_in_own_process, without_blocks

KNOWN = (*RUNS, "python no-run", "sql", "sh", "js", "text", "json")

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_IMAGE = re.compile(r"(?:src|srcset|href)=\"([^\"]+)\"")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def kinds(page: Path) -> set[str]:
    return {block.kind for block in blocks(page.read_text(encoding="utf-8"))}


def with_blocks(*wanted: str, without: str = "") -> list[Path]:
    return [page for page in PAGES if kinds(page) & {*wanted} and without not in kinds(page)]


@pytest.mark.timeout(300)  # pages about Spark start a session
@pytest.mark.shows("O09")
@pytest.mark.parametrize("page", with_blocks("python", "console", without="python postgres"), ids=name_of)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    run_in_own_process(page, tmp_path)


@pytest.mark.shows("O09")
@pytest.mark.parametrize("page", with_blocks("python postgres"), ids=name_of)
def test_the_examples_of_a_page_run_on_postgresql(page: Path, tmp_path: Path, postgres_url: str) -> None:
    run_in_own_process(page, tmp_path, postgres_url)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_has_a_known_kind(page: Path) -> None:
    odd = [
        f"line {one.line}: {one.kind!r}"
        for one in blocks(page.read_text(encoding="utf-8"))
        if one.kind not in KNOWN and not SCRIPT.fullmatch(one.kind)
    ]
    assert not odd, f"known are {', '.join(KNOWN)}"


# --- nothing public is left out ---------------------------------------------------------------------------------------


def reference(name: str) -> str:
    return (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")


def missing(names: set[str], page: str) -> list[str]:
    """The names that the page does not show as code."""
    return sorted(name for name in names if not re.search(rf"`[^`\n]*(?<!\w){re.escape(name)}(?!\w)[^`\n]*`", page))


@pytest.mark.shows("O09")
def test_every_error_is_documented_in_its_own_words() -> None:
    import inspect

    import penstock.cli.app  # noqa: F401  # the errors of the command line are errors, too
    from penstock.errors import all_errors

    page = reference("errors")
    assert missing(set(all_errors()), page) == []
    for code, error in all_errors().items():
        message = " ".join(inspect.cleandoc(error.__doc__ or "").split())
        for words in (message, error.hint, f"`{error.__name__}`"):
            assert words.replace("|", "\\|") in page, f"{code}: {words}"


@pytest.mark.shows("O09")
def test_every_public_name_is_documented() -> None:
    import penstock
    import penstock.testing

    page = reference("python")
    assert missing({*penstock.__all__, *penstock.testing.__all__}, page) == []
    for cls in (penstock.Log, penstock.Lease, penstock.Event):
        assert missing({name for name in dir(cls) if not name.startswith("_")}, page) == []


@pytest.mark.shows("O09")
def test_every_command_and_option_is_documented() -> None:
    import typer

    from penstock.cli.app import root

    page = reference("cli")
    top = typer.main.get_command(root)
    for path, command in every_command(top, "penstock"):
        assert f"`{path}`" in page or f"`{path} " in page, path
        options = {name for one in command.params for name in one.opts if name.startswith("--")}
        assert missing(options - {"--install-completion", "--show-completion"}, page) == [], path


def every_command(command: object, path: str) -> Iterator[tuple[str, object]]:
    inside = getattr(command, "commands", None)
    if inside is None:
        yield path, command
        return
    for name, one in inside.items():
        yield from every_command(one, f"{path} {name}")


@pytest.mark.shows("O09")
def test_every_table_view_column_and_function_is_documented() -> None:
    from penstock.stores import blocks as sql

    page = reference("sql")
    made = re.compile(r"create (?:or replace )?(?:table|view|function)(?: if not exists)? (\S+?)[\s(]")
    tables = re.compile(r"^create table [^;]*;", re.MULTILINE)
    column = re.compile(r'^  "?(\w+)"? +(?:text|big|int|small|json|bytea|blob|uuid|timestamptz|bool|double|real)', re.M)
    for dialect, prefix in (("postgres", "penstock."), ("sqlite", "")):
        text = "\n".join(script for *_, script in sql.migrations(dialect))
        names = {name.removeprefix(prefix) for name in made.findall(text)}
        assert names and missing(names, page) == []
        columns = {name for table in tables.findall(text) for name in column.findall(table)}
        assert columns and missing(columns, page) == []


@pytest.mark.shows("O09")
def test_every_limit_is_documented() -> None:
    from penstock.core import limits

    names = {name for name in vars(limits) if name.isupper()}
    assert missing(names, reference("limits")) == []


VOCABULARY = (
    *(
        "stream",
        "event",
        "offset",
        "horizon",
        "group",
        "binding",
        "delivery",
        "claim",
        "lease",
        "token",
        "lane",
        "attempt",
    ),
    *("failure", "settle", "release", "reap", "suspect", "dead letter", "redrive", "replay", "rewind", "handler"),
    *("publisher", "pipeline", "job"),
)


@pytest.mark.shows("O09")
def test_the_glossary_has_every_word_of_the_vocabulary_in_order() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8").partition("\n## ")[0]
    words = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)[1:]
    assert sorted({*VOCABULARY} - {*words}) == []
    assert words == sorted(words, key=str.lower) and len(words) == len({*words})


# --- links and words --------------------------------------------------------------------------------------------------


def anchor(heading: str) -> str:
    """The anchor of a heading as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return kept.replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_existing_pages_and_headings(page: Path) -> None:
    text = without_blocks(page.read_text(encoding="utf-8"))
    for link in [*_LINK.findall(text), *_IMAGE.findall(text)]:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: there is no {target}"
        if fragment and target.suffix == ".md":
            headings = {anchor(one) for one in _HEADING.findall(target.read_text(encoding="utf-8"))}
            assert fragment in headings, f"{link}: {target.name} has no such heading"


def test_every_page_can_be_reached_from_the_index() -> None:
    seen, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = _LINK.findall(without_blocks(page.read_text(encoding="utf-8")))
        waiting += [
            (page.parent / link.partition("#")[0]).resolve() for link in links if not re.match(r"[a-z]+:|#", link)
        ]
    assert [name_of(page) for page in PAGES if page not in seen and page.is_relative_to(DOCS)] == []


def test_drawings_are_those_of_the_script() -> None:
    from tools.draw_diagrams import DRAWINGS

    for name, draw in DRAWINGS.items():
        assert (DOCS / "images" / name).read_text(encoding="utf-8") == str(draw()), (
            f"{name}: run `python tools/draw_diagrams.py`"
        )


def test_pictures_are_well_formed() -> None:
    from xml.etree import ElementTree

    pictures = sorted((DOCS / "images").glob("*.svg"))
    assert pictures
    for picture in pictures:
        root = ElementTree.parse(picture).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.find("{http://www.w3.org/2000/svg}title") is not None, f"{picture.name} needs a title"
