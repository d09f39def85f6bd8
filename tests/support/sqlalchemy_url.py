"""Log URLs for SQLAlchemy."""

from __future__ import annotations


def sqlalchemy_url(url: str, *, driver: str = "") -> str:
    """The URL of the same database, as SQLAlchemy writes it."""
    if url.startswith("sqlite"):
        return url.replace("sqlite:", f"sqlite{driver}:")
    return url.replace("postgresql:", "postgresql+psycopg:")
