"""Vulkan's tables in PostgreSQL: every topic becomes a stream, every consumer group a group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core.delivery import State
from penstock.core.event import check_name
from penstock.core.group import GroupSettings, Position
from penstock.core.imported import Found, Target, Was
from penstock.core.job import check_not_jobs
from penstock.core.limits import PAYLOAD_BYTES
from penstock.errors import InvalidInput, InvalidSource
from penstock.imports import vulkan_layouts
from penstock.imports.fields import body, identity, json_object, origin, oversize
from penstock.imports.postgres import PostgresReader, moment
from penstock.imports.source import GroupCount, counted, kept_open, known_words
from penstock.imports.vulkan_layouts import Layout

if TYPE_CHECKING:
    from psycopg import sql

SCHEMA = "vulkan"
_WORDS = (
    (State.PENDING, "ready"),
    (State.CLAIMED, "processing"),
    (State.PUBLISHED, "done"),
    (State.DEAD, "dead"),
)
_LOG_FIELDS = ("type", "key", "event_id", "headers", "created_at")
_STATE_FIELDS = ("status", "attempts", "run_at", "last_error", "updated_at")
_TIMES = ("created_at", "run_at", "updated_at")


class _Group(NamedTuple):
    """A consumer group of a topic; without a cursor every event it wants has a delivery."""

    name: str
    cursor: int | None


class Vulkan:
    """The events of all topics, or of those that are named, with the states of their groups.

    An event without a delivery was finished: it lies below the cursor, or the group never wanted it.
    """

    system = "vulkan"
    resumes = True
    stop_first = "all workers of these groups"
    state = None

    def __init__(
        self,
        url: str,
        *,
        start: Position,
        settings: GroupSettings,
        schema: str = SCHEMA,
        topics: Sequence[str] = (),
        streams: Mapping[str, str] | None = None,
        groups: Mapping[str, str] | None = None,
        states: Mapping[str, str] | None = None,
        default_type: str | None = None,
    ) -> None:
        self.options = {
            "topics": sorted(topics),
            "streams": dict(streams or {}),
            "groups": dict(groups or {}),
            "states": dict(states or {}),
            "type": default_type,
        }
        self.notes: dict[str, Any] = {}
        self._words = known_words(*_WORDS, more=states)
        self._type = default_type
        self._streams, self._names = dict(streams or {}), dict(groups or {})
        self._database = PostgresReader(url)
        self.name = f"{self._database.name}#{schema}" + (f" {' '.join(sorted(topics))}" if topics else "")
        with kept_open(self._database):
            self._layouts = vulkan_layouts.find(self._database, schema)
            self._topics = self._find_topics(topics)
            self.targets = [
                _checked(Target(self._stream(topic), self._group(one), start, settings))
                for topic, (_, listed) in self._topics.items()
                for one in listed
            ]
            _check_apart(self.targets)

    def _stream(self, topic: str) -> str:
        return self._streams.get(topic, topic)

    def _group(self, one: _Group) -> str:
        return self._names.get(one.name, one.name)

    def _find_topics(self, wanted: Sequence[str]) -> dict[str, tuple[Layout, list[_Group]]]:
        """Return the topics with their groups, in the order of names."""
        found: dict[str, tuple[Layout, list[_Group]]] = {}
        for layout in self._layouts:
            for topic in [layout.topic] if layout.topic is not None else self._listed(layout):
                found[topic] = (layout, self._groups(layout, topic))
        missing = [topic for topic in wanted if topic not in found]
        if missing:
            raise InvalidSource(f"There is no topic {missing[0]!r}; there are {', '.join(sorted(found)) or 'none'}.")
        return {topic: found[topic] for topic in sorted(found) if not wanted or topic in wanted}

    def _listed(self, layout: Layout) -> list[str]:
        from psycopg import sql

        query = sql.SQL("select distinct {}::text from {} order by 1").format(
            sql.Identifier(layout.columns["topic"]), _table(layout.log)
        )
        found = [topic for (topic,) in self._database.rows(query)]
        if None in found:
            raise InvalidSource(f"Some events of {layout.log} have no topic.")
        return found

    def _groups(self, layout: Layout, topic: str) -> list[_Group]:
        from psycopg import sql

        if layout.cursors is not None:
            query = sql.SQL("select {}::text, {}::bigint from {} where {} order by 1").format(
                sql.Identifier(layout.cursor["group"]),
                sql.Identifier(layout.cursor["offset"]),
                _table(layout.cursors),
                _of_topic(layout.cursor, layout),
            )
            return [_Group(name, cursor) for name, cursor in self._database.rows(query, {"topic": topic})]
        query = sql.SQL("select distinct d.{}::text from {} d join {} e on e.{} = d.{} where {} order by 1").format(
            sql.Identifier(layout.states["group"]),
            _table(layout.deliveries),
            _table(layout.log),
            sql.Identifier(layout.offset),
            sql.Identifier(layout.event),
            _of_topic(layout.columns, layout, "e"),
        )
        return [_Group(name, None) for (name,) in self._database.rows(query, {"topic": topic})]

    # --- counting -----------------------------------------------------------------------------------------------------

    def count(self) -> list[GroupCount]:
        """Count the deliveries of every group; what has none is finished, or lies beyond the cursor."""
        found = []
        for topic, (layout, groups) in self._topics.items():
            words = self._by_group(layout, topic)
            for group in groups:
                states = counted(words.get(group.name, {}), self._words, f"The group {group.name}")
                total, beyond = self._totals(layout, topic, group)
                rest = total - sum(states.values())
                states[State.PENDING] = states.get(State.PENDING, 0) + beyond
                states[State.PUBLISHED] = states.get(State.PUBLISHED, 0) + rest - beyond
                left = {state: count for state, count in states.items() if count}
                found.append(GroupCount(self._stream(topic), self._group(group), left))
        return found

    def _by_group(self, layout: Layout, topic: str) -> dict[str, dict[str | None, int]]:
        from psycopg import sql

        query = sql.SQL(
            "select d.{}::text, d.{}::text, count(*) from {} d join {} e on e.{} = d.{} where {} group by 1, 2"
        ).format(
            sql.Identifier(layout.states["group"]),
            sql.Identifier(layout.states["status"]),
            _table(layout.deliveries),
            _table(layout.log),
            sql.Identifier(layout.offset),
            sql.Identifier(layout.event),
            _of_topic(layout.columns, layout, "e"),
        )
        found: dict[str, dict[str | None, int]] = defaultdict(dict)
        for group, word, count in self._database.rows(query, {"topic": topic}):
            found[group][word] = int(count)
        return found

    def _totals(self, layout: Layout, topic: str, group: _Group) -> tuple[int, int]:
        """Return how many events a topic has, and how many without a delivery lie beyond the group's cursor."""
        from psycopg import sql

        query = sql.SQL(
            "select count(*), count(*) filter (where e.{offset} > %(cursor)s and not exists"
            " (select 1 from {deliveries} d where d.{event} = e.{offset} and d.{group}::text = %(group)s))"
            " from {log} e where {topic}"
        ).format(
            offset=sql.Identifier(layout.offset),
            deliveries=_table(layout.deliveries),
            event=sql.Identifier(layout.event),
            group=sql.Identifier(layout.states["group"]),
            log=_table(layout.log),
            topic=_of_topic(layout.columns, layout, "e"),
        )
        cursor = 2**63 - 1 if group.cursor is None else group.cursor
        ((total, beyond),) = self._database.rows(query, {"cursor": cursor, "group": group.name, "topic": topic})
        return int(total), int(beyond)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, after: Any) -> Iterator[Found]:
        """Yield the events of one topic after the other, in the order of their offsets."""
        for topic, (layout, groups) in self._topics.items():
            if after is not None and topic < after[0]:
                continue
            low = after[1] if after is not None and topic == after[0] else -(2**63)
            for offset, payload, size, states, *values in self._database.each(
                self._events(layout), {"topic": topic, "after": low}
            ):
                row = dict(zip(_LOG_FIELDS, values, strict=True))
                yield self._found(topic, int(offset), payload, size, row, self._states(states or [], groups, offset))

    def _events(self, layout: Layout) -> sql.Composed:
        """Return the query of a topic's events, each with its deliveries as rows of an array."""
        from psycopg import sql

        payload = sql.SQL("e.{}").format(sql.Identifier(layout.columns["payload"]))
        if layout.types[layout.columns["payload"]] != "bytea":
            payload = sql.SQL("{}::text").format(payload)
        states = sql.SQL(", ").join(_field(layout.states, name, "d") for name in ("group", *_STATE_FIELDS))
        # Joined, not looked up one by one: deliveries may have no index that begins with their event.
        return sql.SQL(
            "select e.{offset}, case when octet_length({payload}) <= {most} then {payload} end,"
            " octet_length({payload}), s.states, {fields}"
            " from {log} e left join (select d.{event} as place, json_agg(json_build_array({states})) as states"
            " from {deliveries} d join {log} e on e.{offset} = d.{event}"
            " where {topic} and e.{offset} > %(after)s group by d.{event}) s on s.place = e.{offset}"
            " where {topic} and e.{offset} > %(after)s order by e.{offset}"
        ).format(
            offset=sql.Identifier(layout.offset),
            payload=payload,
            most=sql.Literal(PAYLOAD_BYTES),
            states=states,
            deliveries=_table(layout.deliveries),
            event=sql.Identifier(layout.event),
            fields=sql.SQL(", ").join(_field(layout.columns, name, "e") for name in _LOG_FIELDS),
            log=_table(layout.log),
            topic=_of_topic(layout.columns, layout, "e"),
        )

    def _states(self, rows: list[list[Any]], groups: list[_Group], offset: int) -> dict[str, Was]:
        said = {row[0]: dict(zip(_STATE_FIELDS, row[1:], strict=True)) for row in rows}
        found = {}
        for group in groups:
            row = said.get(group.name)
            if row is None:
                beyond = group.cursor is not None and offset > group.cursor
                found[self._group(group)] = Was(State.PENDING if beyond else State.PUBLISHED)
                continue
            state = self._words["null" if row["status"] is None else row["status"].lower()]
            died = _moment(row["updated_at"]) if state is State.DEAD else None
            attempts = max(0, int(row["attempts"] or 0))
            found[self._group(group)] = Was(state, attempts, row["last_error"], _moment(row["run_at"]), died)
        return found

    def _found(
        self, topic: str, offset: int, payload: Any, size: int | None, row: dict[str, Any], states: Mapping[str, Was]
    ) -> Found:
        raw, content_type = body(payload)
        headers, odd = json_object(row["headers"], "headers")
        event_id, noted = identity(f"{self._database.name} {topic}", row["event_id"], str(offset))
        fields = {
            "payload": raw,
            "content_type": content_type,
            "type": row["type"] or self._type or topic,
            "headers": headers,
            "metadata": {**noted, **origin(row["created_at"], offset=offset)},
            "event_id": event_id,
            "ordering_key": row["key"] or None,
        }
        return Found([topic, offset], self._stream(topic), fields, states, oversize(size) or odd)

    def close(self) -> None:
        """Disconnect."""
        self._database.close()


def _checked(target: Target) -> Target:
    """Refuse names that ours cannot be."""
    try:
        check_not_jobs(check_name(target.stream, "stream"))
        check_name(target.group, "group")
    except InvalidInput as error:
        raise InvalidSource(f"{error.message} Give it another: --stream TOPIC=NAME, --group THEIRS=NAME.") from error
    return target


def _check_apart(targets: Sequence[Target]) -> None:
    """Refuse two groups under one name: the states of one would be those of the other."""
    names = [(one.stream, one.group) for one in targets]
    for stream, group in names:
        if names.count((stream, group)) > 1:
            raise InvalidSource(f"Two groups would be {group!r} on {stream!r}. Give one another name, or its topic.")


def _table(quoted: str) -> sql.SQL:
    from psycopg import sql

    return sql.SQL(quoted)  # as the catalogue quotes it


def _of_topic(columns: Mapping[str, str], layout: Layout, alias: str = "") -> sql.Composable:
    """Return the condition that a row belongs to the topic, where tables hold several."""
    from psycopg import sql

    if layout.topic is not None or "topic" not in columns:
        return sql.SQL("true")
    names = (alias, columns["topic"]) if alias else (columns["topic"],)
    return sql.SQL("{}::text = %(topic)s").format(sql.Identifier(*names))


def _field(columns: Mapping[str, str], name: str, alias: str) -> sql.Composable:
    """Return a column as text, a time or a number; null if the table does not have it."""
    from psycopg import sql

    if name not in columns:
        return sql.NULL
    column = sql.Identifier(alias, columns[name])
    if name in _TIMES:
        return moment(column, due=name == "run_at")
    return sql.SQL("{}::bigint" if name == "attempts" else "{}::text").format(column)


def _moment(text: str | None) -> datetime | None:
    """Return a time that PostgreSQL wrote into JSON."""
    return None if text is None else datetime.fromisoformat(text)
