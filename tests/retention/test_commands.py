"""The commands of retention, archives and erasure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.app import run
from tests.support.log_steps import append_orders
from tests.support.plain_archive import archive


@pytest.mark.shows("O05")
def test_policies_archives_restore_and_erase_on_the_command_line(
    log: penstock.Log, log_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*arguments: str) -> Any:
        assert run([*arguments, "--url", log_url, "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    def shown(*arguments: str) -> str:
        assert run([*arguments, "--url", log_url]) == 0
        return capsys.readouterr().out

    ids = append_orders(log, 5)
    place = str(tmp_path)
    assert "forever" in shown("retention", "list")
    said = command(
        "retention", "set", "orders", "--keep", "30d", "--keep-dead", "90d", "--archive", place, "--by", "ada"
    )
    assert (said["keep"], said["keep_dead"], said["archive"], said["by"]) == (2592000.0, 7776000.0, place, "ada")
    assert command("retention", "list")["streams"][0]["stream"] == "orders"
    assert "orders" in shown("retention", "list")
    assert run(["retention", "set", "orders", "--keep", "soon", "--url", log_url]) == 2
    archive(log, "orders", tmp_path)
    assert command("archives")["archives"][0]["events"] == 5 and "orders" in shown("archives", "orders")
    log.prune("orders", upto=3)
    restored = command("restore", "orders", "--from", place, "--after", "1", "--upto", "3")
    assert (restored["events"], restored["pruned_upto"]) == (2, 1)
    assert run(["erase", str(ids[2]), "--reason", "gdpr", "--url", log_url]) == 2, "nobody was asked"
    capsys.readouterr()
    erased = command("erase", str(ids[2]), "--reason", "gdpr", "--yes")
    assert erased["offset"] == 3 and len(erased["files"]) == 1
    assert "erased" in shown("show", "orders", str(ids[2]))
    assert "penstock-erased" in command("show", "orders", str(ids[2]))["event"]["metadata"]
    assert command("retention", "set", "orders", "--keep", "forever")["keep"] is None
