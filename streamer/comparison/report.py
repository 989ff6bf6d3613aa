"""Describes the comparison of two tables, for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakemark.errors import InvalidConfig
from streamer.comparison.comparison import TableComparison, TableState
from streamer.comparison.rows import DifferentRow, Facts
from streamer.comparison.schemas import TypeDifference
from streamer.row_output import json_text, screen_value
from streamer.wording import counted
from transforms.schema_text import print_schema

_ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class ComparedTables:
    """A comparison, and what was compared.

    Attributes:
        old: the old table.
        new: the new table.
        position: the position in the source that both had reached; "" if the user chose the
            commits.
        old_newest: the newest position of the old table, if it is a later one; else "".
        found: the comparison.
    """

    old: TableState
    new: TableState
    position: str
    old_newest: str
    found: TableComparison

    def to_json(self) -> str:
        """Return one JSON object."""
        rows, columns = self.found.rows, self.found.columns
        facts = {
            "equal": self.found.is_equal,
            "position": self.position or None,
            "old": {"table": self.old.table.location.url, "commit": self.old.as_of},
            "new": {"table": self.new.table.location.url, "commit": self.new.as_of},
            "key": list(self.found.key),
            "rows": {
                "equal": rows.equal,
                "only_old": rows.only_old,
                "only_new": rows.only_new,
                "different": rows.different,
            },
            "different_by_column": dict(rows.by_column),
            "columns": {
                "compared": list(columns.compared.names),
                "only_old": list(columns.only_old),
                "only_new": list(columns.only_new),
                "not_compared": list(columns.not_compared),
                "types": [
                    {"column": one.path, "old": type_text(one.old), "new": type_text(one.new)}
                    for one in columns.types
                ],
            },
            "examples": {
                "only_old": rows.examples_old,
                "only_new": rows.examples_new,
                "different": [_example_json(one) for one in rows.examples_different],
            },
        }
        return json_text(facts)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report."""
        where = f"at {self.position}" if self.position else "at the given times"
        yield f"compared {where}:"
        for name, state in (("old", self.old), ("new", self.new)):
            yield f"  {name}: {state.table.location.url}, as of commit {state.as_of}"
        if self.old_newest:
            yield f"  not compared: later commits of the old table, up to {self.old_newest}"
        compared = self.found.columns.compared.names
        key = ", ".join(self.found.key) or "all of them"
        yield f"  {counted(len(compared), 'column')}; rows matched by {key}"
        yield from self._counts()
        yield from self._column_lines()
        yield from self._example_lines()
        yield "the tables are equal" if self.found.is_equal else "the tables are not equal"

    def _counts(self) -> Iterator[str]:
        rows = self.found.rows
        counts = {
            "equal rows": rows.equal,
            "rows only in the old table": rows.only_old,
            "rows only in the new table": rows.only_new,
            "rows that differ": rows.different,
        }
        for name, count in counts.items():
            yield f"{name}: {count:,}"
        for name, count in rows.by_column.most_common():
            yield f"  {name}: {counted(count, 'row')}"

    def _column_lines(self) -> Iterator[str]:
        columns = self.found.columns
        for title, names in (
            ("columns only in the old table", columns.only_old),
            ("columns only in the new table", columns.only_new),
            ("columns whose values were not compared", columns.not_compared),
        ):
            if names:
                yield f"{title}: {', '.join(names)}"
        if columns.types:
            yield "columns with different types:"
            yield from (f"  {_type_line(one)}" for one in columns.types)

    def _example_lines(self) -> Iterator[str]:
        rows = self.found.rows
        for title, keys in (
            ("the first rows only in the old table", rows.examples_old),
            ("the first rows only in the new table", rows.examples_new),
        ):
            yield from _section(title, map(_facts_text, keys))
        examples = map(_example_text, rows.examples_different)
        yield from _section("the first rows that differ (old -> new)", examples)


def type_text(kind: pa.DataType | None) -> str:
    """Return a type as the pipeline file declares it; Arrow's name if it cannot be declared."""
    if kind is None:
        return _ABSENT
    try:
        return print_schema(pa.schema([pa.field("column", kind)]))["column"]
    except InvalidConfig:
        return str(kind)


def _section(title: str, texts: Iterator[str]) -> Iterator[str]:
    lines: Sequence[str] = list(texts)
    if lines:
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def _type_line(one: TypeDifference) -> str:
    return f"{one.path}: {type_text(one.old)} in the old table, {type_text(one.new)} in the new one"


def _facts_text(facts: Facts) -> str:
    return ", ".join(f"{name}={_value_text(value)}" for name, value in facts.items())


def _example_text(row: DifferentRow) -> str:
    changes = (
        f"{name} {_value_text(old)} -> {_value_text(new)}"
        for name, (old, new) in row.values.items()
    )
    return f"{_facts_text(row.key)}: {', '.join(changes)}"


def _example_json(row: DifferentRow) -> dict[str, Any]:
    values = {name: {"old": old, "new": new} for name, (old, new) in row.values.items()}
    return {"key": row.key, "values": values}


def _value_text(value: Any) -> str:
    """Return a value on one line; texts in quotes, so that null and "" differ."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(screen_value(value))
