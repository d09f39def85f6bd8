"""What was taken from elsewhere is what VENDORED says, and says so."""

from __future__ import annotations

import hashlib
from importlib.resources import files

VENDOR = files("penstock.web").joinpath("static", "vendor")


def test_htmx_is_as_it_was_published() -> None:
    told = VENDOR.joinpath("VENDORED").read_text(encoding="utf-8")
    facts = dict(line.split(None, 1) for line in told.split("\n\n")[0].splitlines())
    content = VENDOR.joinpath(facts["file"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == facts["sha256"]
    assert f'version:"{facts["htmx"]}"'.encode() in content and "Zero-Clause BSD" in told
    assert {one.name for one in VENDOR.iterdir()} == {"VENDORED", facts["file"]}
