"""Writes docs/openapi.json, the description of the HTTP service that tests compare with the service itself."""

import json
import sys
from pathlib import Path
from typing import Any, cast

from penstock.http.app import service
from penstock.http.auth import NoAuth
from penstock.log.log import Log

TARGET = Path(__file__).parents[1] / "docs" / "openapi.json"


def text() -> str:
    """The description as it is stored. It needs no database, and does not depend on the installed version."""
    made: dict[str, Any] = service(cast(Log, None), NoAuth()).openapi()
    made["info"]["version"] = "1"
    return json.dumps(made, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> int:
    TARGET.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
