"""Job types: the group that claims from the streams of a type."""

from __future__ import annotations

from penstock.core.group import GroupSettings, check_settings
from penstock.core.job import GROUP, LEASE_SECONDS
from penstock.log import create_group
from penstock.stores.base import Transaction


def default_settings() -> GroupSettings:
    """Return the settings of the group of a type that nobody has declared."""
    return check_settings(lease_seconds=LEASE_SECONDS)


def ensure_group(tx: Transaction, stream: str) -> None:
    """Create the group of a stream of jobs where it is missing."""
    create_group.ensure(tx, stream, GROUP, "beginning", default_settings())
