"""Wait for another thread or process, but not without end."""

from penstock.testing.servers.waiting import wait_until

__all__ = ["wait_until"]
