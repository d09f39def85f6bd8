"""Hooks of the documentation site: what mkdocs.yml cannot say.

- Pages of the reference are made from the code (tools/site_reference.py). They are in no folder.
- Links that lead out of docs/ stay valid: the file they name becomes a part of the site, below `files/`.
- Blocks that only the tests need (in comments) are left out, and what only they read of a fence's first line.
- Anchors of headings are those that code hosts make, which the links of the pages use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from tools.site_reference import made_pages

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OUTSIDE = "files"  # where the files that are not below docs/ are in the site

_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_HIDDEN = re.compile(r"^<!--\n```.*?^-->$\n?", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```(\w+) +(\S+)$", re.MULTILINE)
_LINK = re.compile(r"(\]\()([^)#\s]+)([^)]*\))")
_CODE = re.compile(r"`[^`\n]+`")
_CLASSES = re.compile(r"\]\[(?=[^\]\n]*\]\{)")  # two character classes of a pattern, which look like a link


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make anchors as the links of the pages expect them."""
    config.mdx_configs["toc"]["slugify"] = anchor
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is made from the code, and what the pages link to outside of docs/."""
    for name, text in made_pages(ROOT).items():
        files.append(File.generated(config, name, content=text))
    for path in sorted(_linked_outside()):
        level = InclusionLevel.NOT_IN_NAV if path.suffix == ".md" else InclusionLevel.INCLUDED
        place = f"{OUTSIDE}/{path.relative_to(ROOT)}"
        if path.suffix == ".md":
            files.append(File.generated(config, place, content=path.read_text(encoding="utf-8"), inclusion=level))
        else:
            files.append(File.generated(config, place, abs_src_path=str(path), inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Prepare a page of the repository for the site."""
    text = _HIDDEN.sub("", markdown)
    text = _FENCE.sub(_fence, text)
    text = _CODE.sub(lambda code: code[0].replace(r"\|", "|"), text)  # code hosts want it escaped in tables
    text = _CLASSES.sub(r"]\[", text)
    home = _source_of(page.file.src_uri)
    if home is None:
        return text
    pieces = _FENCED.split(text)
    pieces[::2] = [_LINK.sub(lambda link: _inside(link, home, page.file.src_uri), one) for one in pieces[::2]]
    return "".join(pieces)


def anchor(heading: str, separator: str) -> str:
    """The anchor of a heading as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", separator)


def _fence(found: re.Match[str]) -> str:
    """A fence without the words for the tests; a file's name becomes the title of its block."""
    language, word = found.groups()
    return f'```{language} title="{word}"' if "." in word else f"```{language}"


def _source_of(src_uri: str) -> Path | None:
    """The file in the repository that a page was made from."""
    if src_uri.startswith(f"{OUTSIDE}/"):
        return ROOT / src_uri.removeprefix(f"{OUTSIDE}/")
    path = DOCS / src_uri
    return path if path.exists() else None


def _inside(link: re.Match[str], home: Path, src_uri: str) -> str:
    """A link that names the place in the site of a file outside of docs/."""
    target = (home.parent / link[2]).resolve()
    if re.match(r"[a-z]+:", link[2]) or not target.exists():
        return link[0]
    target = target / "README.md" if target.is_dir() else target
    place = str(target.relative_to(DOCS)) if target.is_relative_to(DOCS) else f"{OUTSIDE}/{target.relative_to(ROOT)}"
    up = "../" * src_uri.count("/")
    return f"{link[1]}{up}{place}{link[3]}"


def _linked_outside() -> set[Path]:
    """The files outside of docs/ that its pages name, and those that these name in turn."""
    found: set[Path] = set()
    waiting: list[Path] = sorted(DOCS.rglob("*.md"))
    while waiting:
        for target in _targets(waiting.pop()):
            if target not in found and not target.is_relative_to(DOCS):
                found.add(target)
                waiting += [target] if target.suffix == ".md" else []
    return found


def _targets(page: Path) -> Iterator[Path]:
    pieces: list[Any] = _FENCED.split(page.read_text(encoding="utf-8"))
    for _, link, _ in _LINK.findall("".join(pieces[::2])):
        target = (page.parent / link).resolve()
        if re.match(r"[a-z]+:", link) or not target.exists() or not target.is_relative_to(ROOT):
            continue
        yield target / "README.md" if target.is_dir() else target
