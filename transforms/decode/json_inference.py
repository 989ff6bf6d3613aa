"""A schema for JSON records that nobody declared, out of a sample of them.

A field takes the kind that most of its values have: string, bigint, double (integers and other
numbers mixed count as one kind), boolean, array or struct.

Strings stay strings, with one exception: a field is a timestamp if every value of it is an ISO-8601
date and time, and either all of them have an offset or none has. The decoder then reads the latter
as UTC. A mix stays a string, because a value without an offset may be local time.

A field that is null, an empty array or an empty object in every record has no type. It is left out
of the schema and reported, so that it is an unknown field until it is declared or evolves.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from table.schema.evolution import ELEMENT, MAX_EVOLVED_DEPTH, Path, dotted
from transforms.decode.json_screening import screen

SAMPLED_VALUES = 10_000

_BIGINTS = range(-(2**63), 2**63)
_TIMESTAMP = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class InferredSchema:
    """What a sample shows.

    Attributes:
        schema: for ``JsonDecoder``, all nullable; without columns when no field has a type.
        records: JSON objects that were sampled.
        untyped: dotted names of fields that hold nothing in any of them.
    """

    schema: pa.Schema
    records: int
    untyped: tuple[str, ...] = ()


def infer_schema(
    values: pa.Array | pa.ChunkedArray,
    sampled_values: int = SAMPLED_VALUES,
    texts: Collection[str] = (),
) -> InferredSchema:
    """Columns of the first ``sampled_values`` records, in order of first appearance.

    Broken records are passed over. The names are the records' own: ``schema_text.check_columns``
    tells whether a table can have them.

    Args:
        values: ``binary``.
        sampled_values: how many to look at.
        texts: dotted names of fields whose strings stay strings, such as record keys.
    """
    sample = values.slice(0, sampled_values)
    chunks = sample.chunks if isinstance(sample, pa.ChunkedArray) else [sample]
    root = _Seen()
    for chunk in chunks:
        for value in chunk.filter(pa.array(screen(chunk).passed)).to_pylist():
            root.add(_parse(value))
    untyped: list[str] = []
    fields = _Types(texts, untyped).fields_of(root, ())
    return InferredSchema(pa.schema(fields), root.kinds["struct"], tuple(untyped))


def _parse(value: bytes) -> object:
    """The record, or null for a broken one."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


class _Seen:
    """What was seen of the values in one place."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.members: dict[str, _Seen] = {}
        self.elements: _Seen | None = None
        self.is_integral = True
        #: Of all strings whether they are times with an offset, without one (False), or others.
        self.has_offset: set[bool | None] = set()

    def add(self, value: object, depth: int = 0) -> None:
        """Count one value; null tells nothing."""
        if depth > MAX_EVOLVED_DEPTH:
            # Deeper than any table: the decoder rejects it, whatever the type.
            self.kinds["string"] += 1
            self.has_offset.add(None)
        elif isinstance(value, dict):
            self.kinds["struct"] += 1
            for name, member in value.items():
                self.members.setdefault(name, _Seen()).add(member, depth + 1)
        elif isinstance(value, list):
            self.kinds["array"] += 1
            self.elements = self.elements or _Seen()
            for element in value:
                self.elements.add(element, depth + 2)
        elif isinstance(value, bool):
            self.kinds["boolean"] += 1
        elif isinstance(value, (int, float)):
            self.kinds["number"] += 1
            self.is_integral &= isinstance(value, int) and value in _BIGINTS
        elif isinstance(value, str):
            self.kinds["string"] += 1
            if None not in self.has_offset:
                self.has_offset.add(_has_offset(value))

    @property
    def are_timestamps(self) -> bool:
        """Whether all values are times that a timestamp column reads without a guess."""
        return len(self.kinds) == 1 and self.has_offset in ({True}, {False})


@dataclass(frozen=True, slots=True)
class _Types:
    """Chooses types, and notes the fields that have none."""

    texts: Collection[str]
    untyped: list[str]

    def fields_of(self, seen: _Seen, path: Path) -> list[pa.Field]:
        """Fields of an object."""
        types = {name: self._type(of, (*path, name)) for name, of in seen.members.items()}
        return [pa.field(name, inferred) for name, inferred in types.items() if inferred]

    def _type(self, seen: _Seen, path: Path) -> pa.DataType | None:
        """The type in one place, or None where nothing has one."""
        kind = seen.kinds.most_common(1)[0][0] if seen.kinds else "nothing"
        if kind == "struct" and seen.members:
            fields = self.fields_of(seen, path)
            return pa.struct(fields) if fields else None
        if kind == "array" and seen.elements is not None and seen.elements.kinds:
            element = self._type(seen.elements, (*path, ELEMENT))
            return None if element is None else pa.list_(pa.field("element", element))
        if kind in ("struct", "array", "nothing"):
            self.untyped.append(dotted(path))
            return None
        if kind == "number":
            return pa.int64() if seen.is_integral else pa.float64()
        if kind == "boolean":
            return pa.bool_()
        is_time = seen.are_timestamps and dotted(path) not in self.texts
        return _TIMESTAMP if is_time else pa.string()


_DATE_AND_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?"
    r"(Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?",
    re.ASCII,
)


def _has_offset(text: str) -> bool | None:
    """Whether a date and time has an offset from UTC; None for any other text."""
    match = _DATE_AND_TIME.fullmatch(text)
    if match is None:
        return None
    try:
        parsed = datetime.fromisoformat(text)
        if parsed.tzinfo is not None:  # otherwise it is in UTC, and not in this machine's zone
            parsed.astimezone(UTC)
    except (ValueError, OverflowError):  # no such day, or beyond the years 1 to 9999 in UTC
        return None
    return match[1] is not None
