"""The pages of the documentation, their fenced blocks, and a way to run a page in a separate process.

`python -P doc_pages.py PAGE [URL]` runs one page. This module imports nothing of the tests.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
RUNS = ("python", "python postgres", "console", "text output")
SCRIPT = re.compile(r"python (\w+\.py)")

_FENCE = re.compile(r"^```(.*)$")


@dataclass(frozen=True)
class Block:
    """One fenced block: its first line's number, its kind and its text."""

    line: int
    kind: str
    text: str


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page, in order."""
    kind: str | None = None
    begin, lines = 0, []
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if fence and kind is None:
            kind, begin, lines = fence[1].strip(), number + 1, []
        elif fence and kind is not None:
            yield Block(begin, kind, "\n".join(lines) + "\n")
            kind = None
        else:
            lines.append(line)
    assert kind is None, f"line {begin}: the block has no end"


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def run_in_own_process(page: Path, directory: Path, url: str | None = None) -> None:
    """Run a page in this directory; fail if anything on it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_URL"}
    ended = subprocess.run(
        [sys.executable, "-P", "-W", "error", __file__, str(page), *([url] if url else [])],
        cwd=directory,
        env={**environment, "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def run_page(page: str, url: str | None) -> None:
    """Run every block that can be run, in order, up to the first that fails."""
    namespace: dict[str, object] = {"__name__": "docs"}
    if url is not None:
        namespace["url"] = url
    printed = ""
    for block in blocks(Path(page).read_text(encoding="utf-8")):
        where = f"{page}:{block.line}"
        if block.kind == "text output":
            assert printed.strip() == block.text.strip(), f"{where}: the block before it printed\n{printed}"
            continue
        if script := SCRIPT.fullmatch(block.kind):
            printed = run_script(script[1], block, where)
            continue
        if block.kind not in RUNS:
            continue
        said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with contextlib.redirect_stdout(said):
            if block.kind == "console":
                run_console(block, where)
            else:
                # Empty lines in front, so that a traceback names the line of the page.
                exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), namespace)
        said.flush()
        printed = said.buffer.getvalue().decode()  # type: ignore[attr-defined]


def run_script(name: str, block: Block, where: str) -> str:
    """Save the block as a file and run it; return what it printed."""
    Path(name).write_text(block.text, encoding="utf-8")
    ended = subprocess.run([sys.executable, name], check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, f"{where}: {ended.stdout}{ended.stderr}"
    return ended.stdout


def run_console(block: Block, where: str) -> None:
    """Run the commands of the block in this process."""
    from penstock.cli.app import run

    lines = block.text.replace("\\\n", " ").splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    assert commands, f"{where}: a console block shows `$ penstock …`"
    for command in commands:
        program, *arguments = shlex.split(command, comments=True)
        if program == "export":
            name, _, value = arguments[0].partition("=")
            os.environ[name] = value
            continue
        assert program == "penstock", f"{where}: {command}"
        code = run(arguments)
        assert code == 0, f"{where}: `{command}` ended with {code}"


if __name__ == "__main__":
    run_page(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
