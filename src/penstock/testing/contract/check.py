"""`check_publisher`: send through a publisher, look at its target, and say which rules it keeps."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.declare.publisher import Publisher
from penstock.errors import InvalidInput
from penstock.testing.contract import rules, side_by_side
from penstock.testing.contract.received import Received
from penstock.testing.contract.trial import Broken, Overheard, Trial

_RULES: tuple[rules.Rule, ...] = (
    rules.results,
    rules.once,
    rules.again,
    rules.empty,
    rules.binary,
    rules.large,
    rules.odd_json,
    rules.text_headers,
    rules.duplicate_headers,
    rules.bytes_in_headers,
    rules.metadata,
    rules.key,
    rules.ids,
    rules.types,
    side_by_side.threads,
    side_by_side.forked,
    rules.closing,
)
CANNOT = ("text in headers", "duplicate headers", "bytes in headers", "send twice")


class BrokenContract(AssertionError):
    """Rules that a publisher breaks, each with what was seen."""

    def __init__(self, broken: dict[str, str], kept: Sequence[str]) -> None:
        self.broken = broken
        self.kept = kept
        lines = [f"- {rule}\n  {why}" for rule, why in broken.items()]
        super().__init__(f"The publisher breaks {len(broken)} of {len(broken) + len(kept)} rules:\n" + "\n".join(lines))


@dataclass(frozen=True, slots=True)
class CheckedPublisher:
    """The rules that were checked; all of them hold."""

    rules: Sequence[str]

    def __str__(self) -> str:
        return "\n".join(f"- {rule}" for rule in self.rules)


def check_publisher(
    publisher: Publisher,
    received: Callable[[], Iterable[Received]],
    *,
    topic: str | None = None,
    cannot: Collection[str] = (),
    outage: Callable[[], AbstractContextManager[Any]] | None = None,
    secrets: Sequence[str] = (),
    patience_seconds: float = 10.0,
) -> CheckedPublisher:
    """Check a publisher against the contract; raise `BrokenContract`, which names every rule that it breaks.

    `received` returns all messages that the target has got so far. `cannot` names what the target has no place for:
    "text in headers", "duplicate headers", "bytes in headers" (such a message must be refused as permanent), and "send
    twice" if it recognises what it has got already. `outage` makes the target unreachable within a `with` block.
    `secrets` are the credentials of the publisher, which must not be seen anywhere.
    """
    if odd := set(cannot) - {*CANNOT}:
        raise InvalidInput(f"cannot names some of {', '.join(CANNOT)}, not {sorted(odd)[0]!r}.")
    trial = Trial(publisher, received, topic, cannot, patience_seconds)
    wanted: dict[str, Callable[[Trial], None]] = {_words(rule): rule for rule in _RULES}
    if outage is not None:
        wanted[_words(rules.outages)] = partial(rules.outages, outage=outage)
    if secrets:
        wanted[_words(rules.secrets)] = partial(rules.secrets, hidden=tuple(secrets))
    broken: dict[str, str] = {}
    overheard = Overheard(trial.spoken)
    logging.getLogger().addHandler(overheard)
    try:
        for words, rule in wanted.items():
            try:
                rule(trial)
            except Broken as error:
                broken[words] = str(error)
    finally:
        logging.getLogger().removeHandler(overheard)
    if broken:
        raise BrokenContract(broken, [words for words in wanted if words not in broken])
    return CheckedPublisher([*wanted])


def _words(rule: Callable[..., None]) -> str:
    return inspect.cleandoc(rule.__doc__ or "")
