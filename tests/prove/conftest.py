"""The long fault tests use the fixtures of the conformance suite."""

from tests.conformance.conftest import (  # noqa: F401
    clock,
    clocked,
    log,
    log_url,
    make_log,
    postgres_log,
    postgres_log_url,
    template,
)
