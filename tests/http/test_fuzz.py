"""Requests made up from the service's own description: every answer is one that the description names."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from tests.support.http_routes import STREAM, prepare, samples
from tests.support.http_service import Service, is_problem

TEXTS = st.one_of(
    st.sampled_from(["", "a", "orders", "mail", "w", "done", "release", "beginning", "2026-01-01T00:00:00Z", "\x00"]),
    st.text(max_size=20).filter(lambda text: not any(0xD800 <= ord(letter) < 0xE000 for letter in text)),
)
NUMBERS = st.one_of(
    st.integers(-3, 12), st.sampled_from([2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 1e308, -1e308, 0.5, 1e-300])
)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)


def fields_of(described: dict[str, Any], operation: dict[str, Any]) -> list[str]:
    """The names that the body of a request may have."""
    text = json.dumps(operation.get("requestBody", {}))
    found: set[str] = set()
    for name, schema in described["components"]["schemas"].items():
        if f'schemas/{name}"' in text:
            found |= schema.get("properties", {}).keys()
    return sorted(found)


@pytest.mark.shows("X09", "X08", "O12")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("examples", [150, pytest.param(600, marks=pytest.mark.slow)])
def test_no_request_gets_an_answer_that_is_not_described(service: Service, examples: int) -> None:
    described = service.app.openapi()
    routes = samples(prepare(service.log))
    http = service.http(service.token())

    def check(answer: httpx.Response, method: str, route: str) -> None:
        known = described["paths"][route][method.lower()]["responses"]
        assert answer.status_code < 500 and str(answer.status_code) in known, (route, answer.status_code, answer.text)
        if not answer.is_success:
            assert is_problem(answer)
            shown = known[str(answer.status_code)]["content"]["application/problem+json"]["examples"]
            assert answer.json()["code"] in shown, (route, answer.json()["code"])

    posts = [one for one in routes if one.method == "POST"]
    names = {one.route: fields_of(described, described["paths"][one.route]["post"]) for one in posts}

    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=[*HealthCheck]
    )
    @given(st.data())
    def posted(data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(posts))
        body = dict(one.body or {}) if data.draw(st.booleans()) else {}
        for name in data.draw(st.lists(st.sampled_from(names[one.route] or ["x"]), max_size=3, unique=True)):
            body[name] = data.draw(VALUES)
        if body.get("wait"):
            body["wait"] = 0
        check(http.post(one.path, json=body), "POST", one.route)

    gets = [one for one in routes if one.method == "GET" and one.scope is not None]
    params = {
        one.route: [p["name"] for p in described["paths"][one.route]["get"].get("parameters", []) if p["in"] == "query"]
        for one in gets
    }

    @settings(
        max_examples=examples // 3, deadline=None, derandomize=True, database=None, suppress_health_check=[*HealthCheck]
    )
    @given(st.data())
    def got(data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(gets))
        query = {
            name: str(data.draw(LEAVES)) for name in params[one.route] if name != "wait" and data.draw(st.booleans())
        }
        check(http.get(one.path.partition("?")[0], params=query), "GET", one.route)

    posted()
    got()
    assert isinstance(service.log, penstock.Log) and service.log.stats(STREAM).streams
