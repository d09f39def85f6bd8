"""The engine runs on both stores, like everything else."""

from tests.conformance.conftest import clock, clocked, log, log_url, make_log, postgres_log, postgres_log_url, template

__all__ = ["clock", "clocked", "log", "log_url", "make_log", "postgres_log", "postgres_log_url", "template"]
