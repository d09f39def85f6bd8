"""Pages for people with bad intentions: what others see, what errors say, where forms lead."""

from __future__ import annotations

import penstock
from tests.support.furnished import STREAM, furnish
from tests.support.http_service import serving
from tests.support.web_pages import shown

LIVE = {"HX-Request": "true", "HX-Trigger": "live"}


def test_nobody_puts_another_address_into_the_commands_that_others_copy(lite: penstock.Log) -> None:
    """The live part of a page is kept for all who have the same rights; its curl carries their token."""
    furnish(lite)
    with serving(lite) as service:
        one, other = service.http(service.token("read")), service.http(service.token("read"))
        assert "evil.example" in one.get(f"/s/{STREAM}", headers={"Host": "evil.example", **LIVE}).text
        assert "evil.example" not in other.get(f"/s/{STREAM}", headers=LIVE).text


def test_the_query_of_a_panel_names_no_job_of_another_type(lite: penstock.Log) -> None:
    lite.submit("secret", {})
    lite.submit("mine", {})
    with serving(lite) as service:
        page = service.http(service.token("read:jobs:default:0:mine")).get("/jobs").text
        assert "json_each('[2]')" in shown(page, "sql")["jobs"] and "secret" not in page
