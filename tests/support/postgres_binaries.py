"""The PostgreSQL servers on this machine."""

from penstock.testing.servers.postgres_binaries import Binaries, available_servers, copies, newest, usable_directory

__all__ = ["Binaries", "available_servers", "copies", "newest", "usable_directory"]
