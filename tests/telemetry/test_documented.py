"""Every metric, label, span and log field has a line in the reference, and every alert one in the how-to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.core.log_fields import FIELDS
from penstock.telemetry import log_metrics, metrics, traces
from tests.support.prometheus_server import DEPLOY

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
HOW_TO = (ROOT / "docs" / "how-to" / "monitoring.md").read_text(encoding="utf-8")
METRICS = (*metrics.COUNTERS, *metrics.HISTOGRAMS, *log_metrics.ALL)


@pytest.mark.shows("O03", "O09")
@pytest.mark.parametrize("about", METRICS, ids=lambda one: one.name)
def test_every_metric_is_documented_with_its_labels(about: metrics.About) -> None:
    name = about.name + ("_total" if about.kind == "counter" else "")
    labels = ", ".join(f"`{one}`" for one in about.labels) or "–"
    assert f"| `{name}` | {about.kind} | {labels} | {about.text} |" in REFERENCE


def test_nothing_is_documented_that_does_not_exist() -> None:
    known = {about.name + ("_total" if about.kind == "counter" else "") for about in METRICS}
    assert {*re.findall(r"^\| `(penstock_\w+)`", REFERENCE, re.MULTILINE)} == known


@pytest.mark.shows("O03", "O09")
def test_every_span_and_attribute_is_documented() -> None:
    for span, attributes in traces.SPANS.items():
        (row,) = [line for line in REFERENCE.splitlines() if line.startswith(f"| `{span}`")]
        assert [one for one in attributes if f"`{one}`" not in row] == []


@pytest.mark.shows("O09")
def test_every_log_field_and_event_is_documented() -> None:
    section = REFERENCE.partition("## Log fields")[2]
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "penstock").rglob("*.py"))
    said = {*re.findall(r'\babout\(\s*"(\w+)"', source)} | {*re.findall(r'\.say\(\s*"(\w+)"', source)}
    assert len(said) > 20
    assert [one for one in sorted({*said, *FIELDS, "at", "level", "message"}) if f"`{one}`" not in section] == []


@pytest.mark.shows("O09")
def test_every_alert_says_what_it_means_and_what_to_do() -> None:
    rules = (DEPLOY / "prometheus" / "alerts.yml").read_text(encoding="utf-8")
    names = re.findall(r"- alert: (\w+)", rules)
    assert names and names == re.findall(r"^\| `(Penstock\w+)` \|", HOW_TO, re.MULTILINE)
