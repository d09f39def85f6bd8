"""PgBouncer in transaction mode in front of a test server."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support import unprivileged
from tests.support.postgres_server import PostgresServer

START_SECONDS = 20

_CONFIGURATION = """\
[databases]
* = host=127.0.0.1 port={server_port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {directory}/users.txt
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 500
logfile = {directory}/pgbouncer.log
pidfile = {directory}/pgbouncer.pid
"""


class NotInstalled(RuntimeError):
    """pgbouncer is not installed. On Debian or Ubuntu: sudo apt-get install pgbouncer"""

    def __init__(self) -> None:
        super().__init__(type(self).__doc__)


def find() -> Path | None:
    """The program, or None when it is not installed."""
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return Path(found) if found else None


class PgBouncer:
    """Starts on `with`. Two statements outside one transaction may meet different server connections.

    Raises `NotInstalled` when there is no pgbouncer on this machine.
    """

    def __init__(self, server: PostgresServer, *, pool_size: int = 4) -> None:
        program = find()
        if program is None:
            raise NotInstalled
        self.server = server
        self.pool_size = pool_size
        self.port = 0
        self._program = program
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, dbname: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{dbname}"

    def __enter__(self) -> Self:
        directory = self._directory = unprivileged.private_directory("penstock-pgbouncer-")
        self.port = unprivileged.free_port()
        configuration = _CONFIGURATION.format(
            server_port=self.server.port, port=self.port, directory=directory, pool_size=self.pool_size
        )
        (directory / "pgbouncer.ini").write_text(configuration)
        (directory / "users.txt").write_text('"postgres" ""\n')
        self._process = subprocess.Popen(
            [self._program, "--quiet", directory / "pgbouncer.ini"],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **unprivileged.identity(),
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("pgbouncer did not start") from None
                time.sleep(0.02)
            else:
                return
