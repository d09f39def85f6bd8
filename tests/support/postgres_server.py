"""A real PostgreSQL server on a free port and in a temporary directory."""

from penstock.testing.servers.postgres import PostgresServer
from penstock.testing.servers.postgres_binaries import Binaries, available_servers, newest

__all__ = ["Binaries", "PostgresServer", "available_servers", "newest"]
