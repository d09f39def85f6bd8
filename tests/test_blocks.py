"""Named blocks and their includes: what does not fit together is found when the files are read."""

from __future__ import annotations

import pytest

from penstock.stores import blocks


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_every_block_is_assembled(dialect: str) -> None:
    loaded = blocks.load(dialect)
    assert {"claim.look", "settle.whole", "read.events"} <= loaded.keys()
    assert not [name for name, text in loaded.items() if "{{" in text or not text.strip()]


def test_an_include_takes_arguments_and_includes_others() -> None:
    includes = """
-- include: bucket(e)
-- A comment.
{{e}}bucket
-- include: in_lane(e, l)
{{bucket({{e}})}} = {{l}}lane
"""
    verb = "-- name: a.b\nselect 1 where {{in_lane(e., )}} and {{in_lane(, r.)}};\n"
    assert blocks.assemble({"includes.sql": includes, "a.sql": verb}) == {
        "a.b": "select 1 where e.bucket = lane and bucket = r.lane;"
    }


@pytest.mark.parametrize(
    ("includes", "text", "words"),
    [
        ("", "{{gone}}", "there is no include gone"),
        ("-- include: one\n1\n", "select 2", "nobody uses the includes one"),
        ("-- include: one\n{{two}}\n-- include: two\n{{one}}\n", "{{one}}", "one → two → one"),
        ("-- include: one(a, b)\n{{a}}{{b}}\n", "{{one(1)}}", "takes 2 arguments, not 1"),
        ("-- include: one\n{{a}}\n", "{{one}}", "there is no include a"),
        ("-- include: one\n1\n-- include: one\n2\n", "{{one}}", "two includes are called one"),
    ],
)
def test_what_does_not_fit_together_is_refused(includes: str, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        blocks.assemble({"includes.sql": includes, "a.sql": f"-- name: a.b\n{text}\n"})


def test_a_block_has_one_place() -> None:
    with pytest.raises(ValueError, match=r"two blocks are called a\.b"):
        blocks.assemble({"a.sql": "-- name: a.b\nselect 1\n", "b.sql": "-- name: a.b\nselect 2\n"})
