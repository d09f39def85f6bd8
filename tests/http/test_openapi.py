"""The description of the service: complete, and the one that is checked in."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.http.shapes import components
from tools.write_openapi import TARGET, text

METHODS = ("get", "post", "delete")


@pytest.mark.shows("O12")
def test_the_description_that_is_checked_in_is_the_services() -> None:
    assert Path(__file__).parents[2] / "docs" / "openapi.json" == TARGET
    assert TARGET.read_text(encoding="utf-8") == text(), (
        "run `python tools/write_openapi.py` and look at the difference"
    )


@pytest.mark.shows("O12")
def test_every_route_has_words_an_example_a_scope_and_its_codes() -> None:
    import json

    described = json.loads(text())
    examples = described["components"]["examples"]
    for path, methods in described["paths"].items():
        for method, one in methods.items():
            assert method in METHODS and one["description"] and one["summary"], path
            done = next(answer for status, answer in one["responses"].items() if status.startswith("2"))
            shown = next(iter(done.get("content", {}).values()), {})
            assert "204" in one["responses"] or (shown["example"] and shown["schema"]), path
            for status, answer in one["responses"].items():
                if status.startswith("2"):
                    continue
                (kind,) = answer["content"]
                shown = answer["content"][kind]["examples"]
                assert kind == "application/problem+json" and shown, (path, status)
                assert all(examples[code]["value"]["status"] == int(status) for code in shown), (path, status)
            if path.startswith("/v1/"):
                assert one["x-scope"] and one["security"] == [{"token": []}], path
                assert {"401", "403", "422", "429"} <= one["responses"].keys(), path
    for name, schema in described["components"]["schemas"].items():
        if name in components():
            continue  # of answers: their examples are with the routes
        if name not in ("Beating", "Emitted", "Extend", "Failed", "NewEvents", "Problem", "RetryPolicy", "UniqueJob"):
            assert schema.get("examples"), name
