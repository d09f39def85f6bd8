"""A PostgreSQL database to read from: one snapshot, read-only, and errors without a password."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from penstock.errors import InvalidSource, MissingDependency, SourceUnavailable

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

_AT_ONCE = 200  # rows in one answer: a payload may have a megabyte
_SCHEMES = ("postgresql", "postgres")
_FIRST, _LAST = (
    "timestamptz '0001-01-02 00:00:00+00'",
    "timestamptz '9999-12-31 00:00:00+00'",
)  # that all calendars have


class PostgresReader:
    """One read-only transaction that sees the source as it was when it began."""

    def __init__(self, url: str) -> None:
        if urlsplit(url).scheme not in _SCHEMES:
            raise InvalidSource(
                "The source of an import like this is a PostgreSQL database: postgresql://HOST/DATABASE."
            )
        self._secrets = _secrets(url)
        with self.speaking():
            self.connection = _connect(url)
            self.connection.execute(
                "select set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO', false), "
                "set_config('extra_float_digits', '1', false), "  # a position must name its row exactly
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

    def unique(self, table: str, column: str) -> bool:
        """Return whether no two rows of a table have the same value in a column."""
        from psycopg import sql

        query = (
            "select 1 from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]"
            " where i.indrelid = to_regclass(%(table)s) and i.indisunique and i.indisvalid and i.indnkeyatts = 1"
            " and i.indpred is null and a.attname = %(column)s"
        )
        if self.rows(sql.SQL(query), {"table": table, "column": column}):
            return True
        again = sql.SQL("select 1 from {} group by {} having count(*) > 1 limit 1")
        return not self.rows(again.format(sql.SQL(table), sql.Identifier(column)))  # as the catalogue quotes it

    def columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table with their types."""
        from psycopg import sql

        query = (
            "select attname, format_type(atttypid, atttypmod) from pg_attribute"  # a bare char has one letter
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


def moment(column: sql.Composable, *, due: bool = False) -> sql.Composable:
    """A time that every calendar has, else null. What is `due` at no such time, or never, is due on the last day."""
    from psycopg import sql

    time = sql.SQL("{}::timestamptz").format(column)
    later = sql.SQL(_LAST if due else "null")  # literals of ours
    return sql.SQL("case when {time} >= {last} then {later} when {time} >= {first} then {time} end").format(
        time=time, last=sql.SQL(_LAST), later=later, first=sql.SQL(_FIRST)
    )


def _connect(url: str) -> psycopg.Connection[Any]:
    try:
        import psycopg
    except ImportError as error:
        raise MissingDependency("To read from PostgreSQL: pip install 'penstock[postgres]'.") from error
    connection = psycopg.connect(url, connect_timeout=10, client_encoding="UTF8")
    connection.read_only = True
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    return connection


def _secrets(url: str) -> list[str]:
    """Return the texts of a URL that must not be shown, as they are written and as they are meant.

    A password that should have been escaped ends where the driver thinks it does: its pieces are secrets, too.
    `InvalidSource` if no one can tell where it ends.
    """
    parts = urlsplit(url)
    pieces = parts.query.split("&") if parts.query else []
    if "@" in parts.path + parts.fragment or any("=" not in piece for piece in pieces):
        raise InvalidSource(
            "The URL of the source cannot be read. In a password write %2F for /, %3F for ? and %23 for #."
        )
    found = {piece.partition("=")[2] for piece in pieces if piece.startswith(("password", "sslpassword"))}
    found.add(parts.netloc.rpartition("@")[0].partition(":")[2])
    found |= {piece for one in found for piece in one.split("@")}
    return sorted({text for one in found for text in (one, unquote(one)) if text}, key=len, reverse=True)
