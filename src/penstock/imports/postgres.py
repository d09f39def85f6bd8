"""A PostgreSQL database to read from: one snapshot, read-only, and errors without a password."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from penstock.core.urls import without_password
from penstock.errors import InvalidSource, MissingDependency, SourceUnavailable

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

_AT_ONCE = 200  # rows in one answer: a payload may have a megabyte
_SCHEMES = ("postgresql", "postgres")


class PostgresReader:
    """One read-only transaction that sees the source as it was when it began."""

    def __init__(self, url: str) -> None:
        if urlsplit(url).scheme not in _SCHEMES:
            raise InvalidSource(f"{without_password(url)[:80]!r} is not the URL of a PostgreSQL database.")
        self._secrets = _secrets(url)
        with self.speaking():
            self.connection = _connect(url)
            self.connection.execute(
                "select set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO', false), "
                "set_config('idle_in_transaction_session_timeout', '0', false), "
                "set_config('statement_timeout', '0', false)"
            )
            self.connection.commit()
            info = self.connection.info
            self.name = f"postgresql://{info.host}:{info.port}/{info.dbname}"

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Turn errors of the driver into ours: `InvalidSource` for what was asked, else `SourceUnavailable`."""
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            words = self._clean(str(error).strip().partition("\n")[0])
            asked = isinstance(error, psycopg.DataError) or error.sqlstate is not None
            if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) or not asked:
                raise SourceUnavailable(f"The source does not answer: {words}.") from None
            raise InvalidSource(f"The source refuses: {words}.") from None

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def rows(self, query: sql.Composed | sql.SQL, params: Mapping[str, Any] | None = None) -> list[Any]:
        """Run a query that has a small answer."""
        with self.speaking():
            return self.connection.execute(query, params).fetchall()

    def each(self, query: sql.Composed, params: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the rows of a query that may have any number, a few hundred at a time."""
        with self.speaking(), self.connection.cursor(name="penstock_import") as cursor:
            cursor.itersize = _AT_ONCE
            cursor.execute(query, params)
            yield from cursor

    def table(self, name: str) -> str:
        """Return the full name of a table, quoted; `InvalidSource` if there is none."""
        from psycopg import sql

        query = (
            "select format('%%I.%%I', n.nspname, c.relname) from pg_class c"
            " join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass(%(table)s)"
        )
        found = self.rows(sql.SQL(query), {"table": name})
        if not found:
            raise InvalidSource(f"There is no table {name} in the source; name it with --table SCHEMA.NAME.")
        return str(found[0][0])

    def columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table with their types."""
        from psycopg import sql

        query = (
            "select attname, format_type(atttypid, null) from pg_attribute"
            " where attrelid = to_regclass(%(table)s) and attnum > 0 and not attisdropped order by attnum"
        )
        return dict(self.rows(sql.SQL(query), {"table": table}))

    def primary_key(self, table: str) -> list[str]:
        """Return the columns of a table's primary key."""
        from psycopg import sql

        query = (
            "select a.attname from pg_index i"
            " join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey)"
            " where i.indrelid = to_regclass(%(table)s) and i.indisprimary order by array_position(i.indkey, a.attnum)"
        )
        return [name for (name,) in self.rows(sql.SQL(query), {"table": table})]

    def close(self) -> None:
        """Disconnect."""
        self.connection.close()


def _connect(url: str) -> psycopg.Connection[Any]:
    try:
        import psycopg
    except ImportError as error:
        raise MissingDependency("To read from PostgreSQL: pip install 'penstock[postgres]'.") from error
    connection = psycopg.connect(url, connect_timeout=10)
    connection.read_only = True
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    return connection


def _secrets(url: str) -> list[str]:
    """Return the texts of a URL that must not be shown, as they are written and as they are meant."""
    parts = urlsplit(url)
    found = {pair.partition("=")[2] for pair in parts.query.split("&") if pair.startswith(("password", "sslpassword"))}
    if ":" in parts.netloc.rpartition("@")[0]:
        found.add(parts.netloc.rpartition("@")[0].partition(":")[2])
    return sorted({text for one in found for text in (one, unquote(one)) if text}, key=len, reverse=True)
