"""Records `penstock demo` as an animated picture: `python -m tools.record_demo` writes docs/images/demo.svg.

The demo runs in a terminal of a fixed size. What it prints goes through a small terminal emulator, and the
screens that XX

    python -m tools.record_demo [--seconds 30] [ARGUMENTS OF THE DEMO]
"""

from __future__ import annotations

import argparse
import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

from tools.terminal_screen import Row, Screen

TARGET = Path(__file__).parents[1] / "docs" / "images" / "demo.svg"
COLUMNS, LINES = 104, 32
FRAME_SECONDS = 0.2  # screens that stood there for a shorter time are left out
LONGEST_SECONDS = 0.6  # a screen on which nothing is new stays no longer
WAITING_SECONDS = 4.0  # nor do several of them
LINE_SECONDS = 0.3  # for every line that is new
LINES_AT_ONCE = 5
END_SECONDS = 5.0
WIDE, HIGH = 7.8, 17.0  # of a character
BYTES = 1_500_000

PALETTE = {
    **{"30": "#484f58", "31": "#ff7b72", "32": "#3fb950", "33": "#d29922", "34": "#58a6ff", "35": "#bc8cff"},
    **{"36": "#39c5cf", "37": "#b1bac4", "90": "#6e7681", "91": "#ffa198", "92": "#56d364", "93": "#e3b341"},
    **{"94": "#79c0ff", "95": "#d2a8ff", "96": "#56d4dd", "97": "#f0f6fc"},
}

# Log lines of other processes, which know nothing of the live view and would break it.
_FOREIGN = re.compile(r"demo-orders/\w+: demo-orders@[^\n]*\n")

Frame = tuple[float, tuple[Row, ...]]  # how long it stands there, and what


def record(command: list[str]) -> Iterator[tuple[float, str]]:
    """Run a command in a terminal; what it prints, and when."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    surroundings = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    surroundings["PATH"] = f"{Path(sys.executable).parent}:{surroundings['PATH']}"
    surroundings |= {"COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, cwd=directory, env=surroundings, start_new_session=True
        )
        os.close(other)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            ready, _, _ = select.select([main], [], [], 0.1)
            try:
                data = os.read(main, 65536) if ready else b""
            except OSError:  # the terminal has no other end any more
                break
            if data:
                yield time.monotonic(), _FOREIGN.sub("", decoder.decode(data))
            elif ready or process.poll() is not None:
                break
        if process.wait() != 0:
            sys.exit(f"the command ended with {process.returncode}")
    os.close(main)


def frames(printed: Iterator[tuple[float, str]], most_seconds: float) -> list[Frame]:
    """The screens in their order. What is new stays long enough to be read, waiting is cut short."""
    shown: list[Frame] = []
    before, waited = "", 0.0
    for seconds, rows in _screens(printed):
        shape = _shape(rows)
        fresh = sum(line not in before for line in shape)
        waited = 0.0 if fresh else waited + seconds
        if waited < WAITING_SECONDS:
            shown.append((max(min(seconds, LONGEST_SECONDS), LINE_SECONDS * fresh), rows))
        before = "\n".join(shape)
    *_, (_, last) = shown
    factor = min(1.0, (most_seconds - END_SECONDS) / sum(seconds for seconds, _ in shown))
    return [*((seconds * factor, rows) for seconds, rows in shown), (END_SECONDS, last)]


def _screens(printed: Iterator[tuple[float, str]]) -> Iterator[Frame]:
    """Every screen, and how long it stood there; a long text comes a few lines at a time."""
    screen = Screen(COLUMNS, LINES)
    since = None
    for at, text in printed:
        if since is not None and at - since >= FRAME_SECONDS and any(screen.text()):
            yield at - since, screen.rows
        since = at
        lines = [text] if "\x1b[1A" in text else text.splitlines(keepends=True)  # a live view is redrawn as a whole
        for number, line in enumerate(lines, start=1):
            screen.feed(line)
            if number % LINES_AT_ONCE == 0 and number < len(lines):
                yield 0.0, screen.rows
    yield 0.0, screen.rows


def _shape(rows: tuple[Row, ...]) -> list[str]:
    """What stands in the rows, but for what only counts up or turns."""
    lines = ("".join(cell.text for cell in row).strip() for row in rows)
    return [shape for line in lines if (shape := re.sub(r"[\d,.:/━╸╺⠀-⣿ ]+", " ", line).strip())]


def picture(shown: list[Frame]) -> str:
    """One SVG: the frames stand side by side, and the film is moved from one to the next."""
    width, height = COLUMNS * WIDE + 32, LINES * HIGH + 56
    lines: dict[Row, str] = {}
    film = []
    for number, (_, rows) in enumerate(shown):
        uses = []
        for line, row in enumerate(rows):
            if any(cell.text != " " for cell in row):
                name = lines.setdefault(row, f"l{len(lines)}")
                uses.append(f'<use href="#{name}" y="{line * HIGH:g}"/>')
        film.append(f'<g transform="translate({number * width:g} 0)">{"".join(uses)}</g>')
    whole, past, steps = sum(seconds for seconds, _ in shown), 0.0, []
    for number, (seconds, _) in enumerate(shown):
        steps.append(f"{100 * past / whole:.3f}%{{transform:translateX({-number * width:g}px)}}")
        past += seconds
    last = -(len(shown) - 1) * width
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="t d">
<title id="t">penstock demo</title>
<desc id="d">A recording: orders through the outbox, three groups, dead letters, a redrive, the proof.</desc>
<style>
text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#c9d1d9;white-space:pre}}
.b{{font-weight:700}}.d{{opacity:.6}}{"".join(f".c{name}{{fill:{value}}}" for name, value in PALETTE.items())}
.film{{animation:film {whole:.2f}s step-end infinite}}
@keyframes film{{{"".join(steps)}}}
@media (prefers-reduced-motion:reduce){{.film{{animation:none;transform:translateX({last:g}px)}}}}
</style>
<defs><clipPath id="w"><rect x="0" y="36" width="{width:g}" height="{height - 36:g}"/></clipPath>
{"".join(f'<g id="{name}">{_line(row)}</g>' for row, name in lines.items())}
</defs>
<rect width="{width:g}" height="{height:g}" rx="10" fill="#0d1117"/>
<circle cx="20" cy="19" r="6" fill="#ff5f56"/><circle cx="40" cy="19" r="6" fill="#ffbd2e"/>
<circle cx="60" cy="19" r="6" fill="#27c93f"/><text x="84" y="24" class="d">$ penstock demo</text>
<g clip-path="url(#w)"><g transform="translate(16 52)"><g class="film">{"".join(film)}</g></g></g>
</svg>
"""


def _line(row: Row) -> str:
    """A row as text; cells that look alike are one piece, at their own place."""
    made, column = [], 0
    for look, cells in groupby(row, key=lambda cell: cell.look):
        text = "".join(cell.text for cell in cells)
        if text.strip():
            classes = [f"c{look.colour}"] if look.colour and not look.colour.startswith("#") else []
            classes += ["b"] * look.bold + ["d"] * look.dim
            attributes = f' class="{" ".join(classes)}"' if classes else ""
            attributes += (
                f' fill="{look.colour}" style="fill:{look.colour}"' if (look.colour or "").startswith("#") else ""
            )
            lead = len(text) - len(text.lstrip())
            length = f' textLength="{len(text.strip()) * WIDE:g}" lengthAdjust="spacing"'
            made.append(f'<text x="{(column + lead) * WIDE:g}"{attributes}{length}>{escape(text.strip())}</text>')
        column += len(text)
    return "".join(made)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=45.0, help="how long the picture may last")
    given, rest = parser.parse_known_args()
    made = picture(frames(record([sys.executable, "-m", "penstock.cli", "demo", *rest]), given.seconds))
    size = len(made.encode())
    if size > BYTES:
        sys.exit(f"{size:,} bytes; at most {BYTES:,} are wanted")
    TARGET.write_text(made, encoding="utf-8")
    print(f"{TARGET}: {size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
