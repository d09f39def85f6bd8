"""A Django connection without a Django project."""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import urlsplit

_number = itertools.count()


def configure() -> None:
    """Settings for a project without anything of its own."""
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
            USE_TZ=True,
            ALLOWED_HOSTS=["*"],
            SECRET_KEY="for tests",
            ROOT_URLCONF=__name__,
        )
        django.setup()


urlpatterns: list[Any] = []  # the project has no pages


def connect(url: str) -> tuple[Any, Any]:
    """A connection with its own alias, and `transaction.atomic`."""
    from django.db import connections, transaction

    configure()
    alias = f"penstock{next(_number)}"
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    else:
        database = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.path.lstrip("/"),
            "USER": parts.username,
            "HOST": parts.hostname,
            "PORT": parts.port,
        }
    connections.databases[alias] = {**connections.databases["default"], **database}
    connections.configure_settings(connections.databases)
    return connections[alias], transaction.atomic
