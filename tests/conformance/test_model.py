"""Every store against the pure model."""

from __future__ import annotations

import os

import pytest

import penstock
from penstock.testing import VirtualClock
from tests.support.store_against_model import check_store_against_model

EXAMPLES = int(os.environ.get("PENSTOCK_TEST_EXAMPLES", "60"))


@pytest.mark.shows("X01", "K05", "K06", "K07", "K13", "K15", "K25")
@pytest.mark.timeout(300)
def test_a_store_behaves_as_the_model(
    clocked: penstock.Log, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_store_against_model(clocked, clock, monkeypatch, examples=EXAMPLES, steps=30)
