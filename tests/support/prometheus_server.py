"""Debian's Prometheus in a process of its own, with the configuration and the rules that Penstock ships."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.server_process import ServerProcess

DEPLOY = Path(__file__).parents[2] / "deploy"


class PrometheusServer(ServerProcess):
    """Scrapes a service and an engine every second; rules fire at once instead of after a while."""

    def __init__(self, service: str, engine: str, token: str) -> None:
        super().__init__()
        self._write("token", token)
        config = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
        for ours, theirs in (
            ("15s", "1s"),
            ("/etc/prometheus/penstock.token", str(self.folder / "token")),
            ("127.0.0.1:8787", service),
            ("127.0.0.1:9464", engine),
        ):
            assert ours in config, f"{ours} is not in the configuration any more"
            config = config.replace(ours, theirs)
        self._write("prometheus.yml", config)
        self._write("alerts.yml", re.sub(r"\n +for: \w+", "", (DEPLOY / "prometheus" / "alerts.yml").read_text()))

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def command(self) -> Sequence[str]:
        return (
            "prometheus",
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        )

    def answers(self) -> bool:
        """Whether it has read its own files."""
        if not super().answers():
            return False
        try:
            return bool(urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5).status == 200)
        except OSError:  # 503 is one
            return False

    def ask(self, path: str, **parameters: str) -> Any:
        """What its API answers; it fails with what is wrong if that is an error."""
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        return body["data"]

    def series(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression has now."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        found = self.ask("alerts")["alerts"]
        return {one["labels"]["alertname"] for one in found if one["state"] == "firing"}
