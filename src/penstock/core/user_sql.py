"""The user's SQL statements that run inside a settle."""

from __future__ import annotations

import re


class UserSqlError(Exception):
    """A user's statement failed inside a settle."""

    def __init__(self, cause: BaseException | None, message: str) -> None:
        super().__init__(message)
        self.cause = cause


_FIRST_WORD = re.compile(r"(?:[\s;(]|--[^\n]*|/\*.*?\*/)*([A-Za-z]*)", re.DOTALL)
_OR_ROLLBACK = re.compile(r"\bor\s+rollback\b", re.IGNORECASE)
_REFUSED = re.compile(
    r"(begin|start|commit|end|rollback|abort|savepoint|release|prepare|set|reset|attach|detach|pragma|vacuum)\Z",
    re.IGNORECASE,
)


def check_user_sql(sql: str) -> None:
    """Refuse a statement that would begin, end or change the settle's transaction."""
    if _OR_ROLLBACK.search(sql):
        raise UserSqlError(None, f"OR ROLLBACK would end the settle's own transaction: {sql[:120]}")
    word = _FIRST_WORD.match(sql)
    if word is not None and _REFUSED.match(word[1]):
        raise UserSqlError(None, f"{word[1].upper()} would change the settle's own transaction: {sql[:120]}")
