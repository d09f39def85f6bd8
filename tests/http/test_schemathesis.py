"""Requests made up by schemathesis: no 5xx, and no answer that contradicts the service's own description."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import (
    content_type_conformance,
    negative_data_rejection,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.generation import GenerationMode

from tests.support.http_routes import OWNER, Sample, prepare, samples
from tests.support.http_service import Service

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
FIXED = ("GET /healthz", "GET /readyz")  # they take nothing that could be wrong
VALID, WRONG = GenerationMode.POSITIVE, GenerationMode.NEGATIVE


class Asked:
    """A running service as its description sees it. Every answer is checked against the description."""

    def __init__(self, service: Service) -> None:
        self._url = service.url
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"Bearer {service.token(name=OWNER)}"
        self.samples = {f"{one.method} {one.route}": one for one in samples(prepare(service.log))}
        described = schemathesis.openapi.from_dict(service.app.openapi())
        self.operations = {one.label: one for one in (found.ok() for found in described.get_all_operations())}
        self.statuses: Counter[int] = Counter()

    def check(self, case: Any, *more: Any) -> int:
        answer = case.call(base_url=self._url, session=self.session)
        case.validate_response(answer, checks=[*CHECKS, *more])
        self.statuses[answer.status_code] += 1
        return int(answer.status_code)


@pytest.fixture
def asked(service: Service) -> Iterator[Asked]:
    service.app.state.polls.stop()  # nobody waits for what does not come …
    service.app.state.live.stop()  # … or for what changes
    made = Asked(service)
    with made.session:
        yield made


def parts_of(one: Sample) -> dict[str, str]:
    """The parts of a path that has what it names."""
    found = re.match(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/?]+)", one.route), one.path)
    assert found is not None
    return found.groupdict()


@pytest.mark.shows("X09", "O12")
def test_answers_to_good_requests_are_as_described(asked: Asked) -> None:
    for label, one in asked.samples.items():
        query = dict(part.split("=") for part in one.path.partition("?")[2].split("&") if part)
        body = {} if one.body is None else {"body": one.body, "media_type": "application/json"}
        case = asked.operations[label].Case(path_parameters=parts_of(one), query=query, **body)
        assert asked.check(case) < 300, label


@pytest.mark.shows("X09", "X08", "O12")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("examples", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_no_answer_contradicts_the_description(asked: Asked, examples: int, log_url: str) -> None:
    """For every route so many valid requests for what exists, and so many wrong ones, which are refused."""
    quickly = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    for label, operation in asked.operations.items():
        known = parts_of(asked.samples[label]) or None
        chosen = seed(f"{log_url.partition(':')[0]} {label}")  # others on the other store

        @chosen
        @quickly
        @given(operation.as_strategy(generation_mode=VALID, path_parameters=known))
        def valid(case: Any) -> None:
            asked.check(case)

        @chosen
        @quickly
        @given(operation.as_strategy(generation_mode=WRONG, path_parameters=known))
        def wrong(case: Any) -> None:
            asked.check(case, negative_data_rejection)

        valid()
        if label not in FIXED:
            wrong()
    assert asked.statuses.keys() >= {200, 201, 204, 400, 401, 404, 409, 422}, asked.statuses
