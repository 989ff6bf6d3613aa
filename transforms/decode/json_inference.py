"""A schema for JSON records that nobody declared, out of a sample of them.

A field takes the kind that most of its values have: string, bigint, double (integers and other
numbers mixed count as one kind), boolean, array or struct. Strings stay strings, whatever they
look like. A field that is never more than null, and the elements of arrays that are always empty,
become strings; an object that is always empty has nothing to keep and is left out.
"""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa

from table.schema.evolution import MAX_EVOLVED_DEPTH
from transforms.decode.json_screening import screen

SAMPLED_VALUES = 10_000

_BIGINTS = range(-(2**63), 2**63)


def infer_schema(
    values: pa.Array | pa.ChunkedArray, sampled_values: int = SAMPLED_VALUES
) -> pa.Schema:
    """Columns of the first ``sampled_values`` records, in order of first appearance.

    Broken records are passed over. The names are the records' own: ``schema_text.check_columns``
    tells whether a table can have them.

    Args:
        values: ``binary``.
        sampled_values: how many to look at.

    Returns:
        A schema for ``JsonDecoder``, all nullable; without columns when no record could be read.
    """
    sample = values.slice(0, sampled_values)
    chunks = sample.chunks if isinstance(sample, pa.ChunkedArray) else [sample]
    root = _Seen()
    for chunk in chunks:
        for value in chunk.filter(pa.array(screen(chunk).passed)).to_pylist():
            root.add(_parse(value))
    inferred = root.infer()
    return pa.schema(list(inferred) if inferred is not None and root.members else [])


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
        self._elements: _Seen | None = None
        self._is_integral = True

    def add(self, value: object, depth: int = 0) -> None:
        """Count one value; null tells nothing."""
        if depth > MAX_EVOLVED_DEPTH:
            return  # deeper than any table
        if isinstance(value, dict):
            self.kinds["struct"] += 1
            for name, member in value.items():
                self.members.setdefault(name, _Seen()).add(member, depth + 1)
        elif isinstance(value, list):
            self.kinds["array"] += 1
            self._elements = self._elements or _Seen()
            for element in value:
                self._elements.add(element, depth + 2)
        elif isinstance(value, bool):
            self.kinds["boolean"] += 1
        elif isinstance(value, (int, float)):
            self.kinds["number"] += 1
            self._is_integral &= isinstance(value, int) and value in _BIGINTS
        elif isinstance(value, str):
            self.kinds["string"] += 1

    def infer(self) -> pa.DataType | None:
        """The type, or None for an object without fields."""
        kind = self.kinds.most_common(1)[0][0] if self.kinds else "string"
        if kind == "struct":
            return self._infer_struct()
        if kind == "array":
            element = self._elements.infer() if self._elements else pa.string()
            return None if element is None else pa.list_(pa.field("element", element))
        if kind == "number":
            return pa.int64() if self._is_integral else pa.float64()
        return pa.bool_() if kind == "boolean" else pa.string()

    def _infer_struct(self) -> pa.DataType | None:
        types = {name: member.infer() for name, member in self.members.items()}
        fields = [pa.field(name, inferred) for name, inferred in types.items() if inferred]
        return pa.struct(fields) if fields else None
