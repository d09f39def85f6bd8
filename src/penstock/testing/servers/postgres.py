"""A real PostgreSQL server on a free port and in a temporary directory."""

import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, LiteralString, Self

import psycopg
from psycopg import sql

from penstock.testing.servers import postgres_binaries, unprivileged
from penstock.testing.servers.children import children_of
from penstock.testing.servers.postgres_binaries import Binaries, available_servers, newest, usable_directory
from penstock.testing.servers.waiting import wait_until

__all__ = ["Binaries", "PostgresServer", "available_servers", "newest"]

START_SECONDS = 60
STOP_SECONDS = 30

# Ends the server and removes its files when the process that started it was killed.
_LEASH = 'read -r _; kill -QUIT "$1"; sleep 1; shift; rm -rf "$@"'


class PostgresServer:
    """Starts on `start()` or `with`; the files are removed on `stop()`.

    `fsync=False` survives killed processes, not a power cut. Use `fsync=True` to measure.

        with PostgresServer() as server:
            url = server.create_database()
    """

    def __init__(
        self,
        binaries: Binaries | None = None,
        *,
        fsync: bool = False,
        settings: Mapping[str, str | int] | None = None,
    ) -> None:
        self.binaries = binaries or newest()
        self.port = 0
        self.settings: dict[str, str | int] = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": 200,
            "max_prepared_transactions": 10,
            "dynamic_shared_memory_type": "mmap",  # in the data directory, so a kill leaves nothing behind
            "fsync": "on" if fsync else "off",
            "full_page_writes": "on" if fsync else "off",
            **(settings or {}),
        }
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: subprocess.Popen[bytes] | None = None

    @property
    def version(self) -> tuple[int, int]:
        return self.binaries.version

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- lifecycle -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when the server answers. After `kill()` it comes back with the same data and port."""
        if self._process is not None:
            return
        if self._directory is None:
            self._directory = unprivileged.private_directory("penstock-pg-")
            self._initdb()
        # A free port may be taken by another process first; a port that clients already know is kept.
        attempts = 1 if self.port else 5
        for attempt in range(1, attempts + 1):
            port = self.port or unprivileged.free_port()
            try:
                self._launch(port)
            except RuntimeError:
                if attempt == attempts:
                    raise
            else:
                self.port = port
                return

    def start_as_standby_of(self, primary: "PostgresServer") -> None:
        """Copies a running server and follows it, as a hot standby."""
        self._directory = unprivileged.private_directory("penstock-pg-")
        done = subprocess.run(
            [
                self._program("pg_basebackup"),
                "-d",
                primary.url(),
                "-D",
                self._data(),
                "-R",
                "-X",
                "stream",
                "-c",
                "fast",
            ],
            check=False,
            capture_output=True,
            text=True,
            **self._surroundings(),
        )
        if done.returncode != 0:
            raise RuntimeError(f"pg_basebackup failed:\n{done.stdout}{done.stderr}")
        self.start()

    def stop(self) -> None:
        """Fast shutdown; removes the data. Does nothing when not started."""
        self._shut_down()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def restart(self) -> None:
        """Stops the server if it runs, and starts it on the same data and port."""
        self._shut_down()
        self.start()

    def kill(self) -> None:
        """SIGKILL to the server and all its children, as the out-of-memory killer would; data stays."""
        process = self._process
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGSTOP)  # so that it starts no more children
        children = children_of(process.pid)
        for pid in [process.pid, *children]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not any(_alive(pid) for pid in children), "the killed server to be gone")
        self._forget_process()

    # -- databases -------------------------------------------------------------------------------------

    def url(self, dbname: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{dbname}"

    def create_database(self, name: str | None = None, template: str | None = None) -> str:
        """Creates a database and returns its URL."""
        name = name or f"t_{uuid.uuid4().hex[:16]}"
        query: LiteralString = "CREATE DATABASE {}" if template is None else "CREATE DATABASE {} TEMPLATE {}"
        names = [sql.Identifier(part) for part in (name, template) if part is not None]
        self._administer(sql.SQL(query).format(*names))
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drops a database even if it has connections."""
        self._administer(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _administer(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    # -- processes -------------------------------------------------------------------------------------

    def _initdb(self) -> None:
        command = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--username=postgres", "--no-sync"]
        done = subprocess.run(
            [self._program("initdb"), *command, "-D", self._data()],
            check=False,
            capture_output=True,
            text=True,
            **self._surroundings(),
        )
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed:\n{done.stdout}{done.stderr}")

    def _launch(self, port: int) -> None:
        options = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        with self._log().open("ab") as log:
            self._process = subprocess.Popen(
                [self._program("postgres"), "-D", self._data(), "-p", str(port), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal is for the tests, not for the server
                **self._surroundings(),
            )
        self._leash = subprocess.Popen(
            [
                "/bin/sh",
                "-c",
                _LEASH,
                "leash",
                str(self._process.pid),
                self._home(),
                *postgres_binaries.copies,
            ],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        process = self._process
        ready: list[Any] = [self._program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]

        def answers() -> bool:
            if process.poll() is not None:
                self._forget_process()
                raise RuntimeError(f"{self.binaries} did not start:\n{self.log_tail()}")
            return subprocess.run(ready, check=False, **self._surroundings()).returncode == 0

        try:
            wait_until(answers, f"{self.binaries} to accept connections", START_SECONDS)
        except TimeoutError:
            self.kill()
            raise

    def _shut_down(self) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            self._forget_process()

    def _forget_process(self) -> None:
        self._process = None
        if self._leash is not None:
            self._leash.kill()
            self._leash.wait()
            if self._leash.stdin is not None:
                self._leash.stdin.close()
            self._leash = None

    # -- files -----------------------------------------------------------------------------------------

    def log_tail(self, lines: int = 20) -> str:
        """The end of the server's log, for error messages."""
        if self._directory is None or not self._log().exists():
            return ""
        return "\n".join(self._log().read_text(errors="replace").splitlines()[-lines:])

    def _home(self) -> Path:
        if self._directory is None:
            raise RuntimeError("the server is not started")
        return self._directory

    def _data(self) -> Path:
        return self._home() / "data"

    def _log(self) -> Path:
        return self._home() / "server.log"

    def program(self, name: str) -> Path:
        """A client program of this installation."""
        return self._program(name)

    def _program(self, name: str) -> Path:
        return usable_directory(self.binaries.directory) / name

    def _surroundings(self) -> dict[str, Any]:
        # No PG* variables of the caller, and a working directory that the server's user may enter.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
        return {"cwd": self._home(), "env": {**kept, "LC_ALL": "C"}, **unprivileged.identity()}


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
