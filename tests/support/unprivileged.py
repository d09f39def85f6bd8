"""Run servers that refuse root, as the demo does."""

from penstock.testing.servers.unprivileged import copy_tree, free_port, identity, private_directory, reachable

__all__ = ["copy_tree", "free_port", "identity", "private_directory", "reachable"]
