"""Compares two tables as sets of rows (with repetition), by logical type and value.

Not compared: order of rows and columns, nullability, names inside lists and maps, the unit of
timestamps and whether a string is stored as large, dictionary or view. Compared: everything else,
with NaN equal to itself and -0.0 different from 0.0.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

Row: TypeAlias = Mapping[str, Any]

_SHOWN = 5
_KEY_COLUMNS = ("_hoodie_partition_path", "_hoodie_record_key")


def assert_same_rows(ours: pa.Table, theirs: pa.Table, *, ignoring: Collection[str] = ()) -> None:
    """Fail with a readable difference unless both hold the same columns and the same rows.

    Args:
        ours: the rows of the code under test, in any order of rows and columns.
        theirs: the rows of the oracle.
        ignoring: columns left out of the comparison on both sides.

    Raises:
        AssertionError: the message lists columns or rows that only one side has; rows that share
            a record key are shown column by column.
    """
    ours, theirs = _comparable(ours, ignoring), _comparable(theirs, ignoring)
    differences = list(_column_differences(ours.schema, theirs.schema))
    assert not differences, "columns differ:\n" + "\n".join(differences)
    theirs = theirs.select(ours.column_names)
    only_ours, only_theirs = _unmatched_rows(ours, theirs)
    if only_ours or only_theirs:
        raise AssertionError(_row_report(ours, theirs, only_ours, only_theirs))


def logical_type(kind: pa.DataType) -> pa.DataType:
    """Return the common type of all physical forms of one logical type."""
    if pa.types.is_dictionary(kind):
        return logical_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        return pa.map_(logical_type(kind.key_type), logical_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", logical_type(kind.value_type)))
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([pa.field(f.name, logical_type(f.type)) for f in fields])
    return kind


def _comparable(table: pa.Table, ignoring: Collection[str]) -> pa.Table:
    kept = table.select([name for name in table.column_names if name not in ignoring])
    return kept.cast(pa.schema([pa.field(f.name, logical_type(f.type)) for f in kept.schema]))


def _column_differences(ours: pa.Schema, theirs: pa.Schema) -> Iterator[str]:
    for name in sorted({*ours.names, *theirs.names}):
        our_type, their_type = _types_named(ours, name), _types_named(theirs, name)
        if our_type != their_type:
            yield f"  {name}: ours {our_type}, theirs {their_type}"


def _types_named(schema: pa.Schema, name: str) -> str:
    types = [str(schema.field(i).type) for i in schema.get_all_field_indices(name)]
    return " and ".join(types) or "absent"


def _unmatched_rows(ours: pa.Table, theirs: pa.Table) -> tuple[list[int], list[int]]:
    """Find the indexes of the rows on each side that have no equal on the other side."""
    our_keys, their_keys = _row_keys(ours), _row_keys(theirs)
    return _beyond(our_keys, Counter(their_keys)), _beyond(their_keys, Counter(our_keys))


def _row_keys(table: pa.Table) -> list[object]:
    columns = [[_hashable(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def _hashable(value: object) -> object:
    if isinstance(value, float):
        return struct.pack(">d", value) if value == value else "NaN"
    if isinstance(value, dict):
        return tuple((key, _hashable(item)) for key, item in value.items())
    if isinstance(value, list):
        items = [_hashable(item) for item in value]
        return tuple(sorted(items, key=repr)) if _is_map_entries(value) else tuple(items)
    return tuple(map(_hashable, value)) if isinstance(value, tuple) else value


def _is_map_entries(value: Sequence[object]) -> bool:
    """Whether the value is a map as Arrow represents it: pairs, in any order."""
    return bool(value) and all(isinstance(item, tuple) for item in value)


def _beyond(keys: Sequence[object], allowed: Counter[object]) -> list[int]:
    left = allowed.copy()
    unmatched = []
    for index, key in enumerate(keys):
        if left[key] > 0:
            left[key] -= 1
        else:
            unmatched.append(index)
    return unmatched


def _row_report(
    ours: pa.Table, theirs: pa.Table, only_ours: Sequence[int], only_theirs: Sequence[int]
) -> str:
    lines = [
        f"rows differ: {ours.num_rows} ours, {theirs.num_rows} theirs; "
        f"{len(only_ours)} only ours, {len(only_theirs)} only theirs"
    ]
    missing = ours.take(pa.array(only_ours, pa.int64())).to_pylist()
    surplus = theirs.take(pa.array(only_theirs, pa.int64())).to_pylist()
    their_rows = {_record_key(row): row for row in surplus}
    our_keys = {_record_key(row) for row in missing}
    for row in missing[:_SHOWN]:
        lines += _row_difference(row, their_rows.get(_record_key(row)))
    for row in [row for row in surplus if _record_key(row) not in our_keys][:_SHOWN]:
        lines.append(f"  only theirs: {row}")
    return "\n".join(lines)


def _record_key(row: Row) -> object:
    """Return the value that pairs rows of both sides: the record key, or the first column."""
    named = tuple(row[name] for name in _KEY_COLUMNS if name in row)
    return named or _hashable(next(iter(row.values()), None))


def _row_difference(ours: Row, theirs: Row | None) -> list[str]:
    if theirs is None:
        return [f"  only ours: {ours}"]
    return [
        f"  {_record_key(ours)}",
        *(
            f"    {name}: ours {value!r}, theirs {theirs[name]!r}"
            for name, value in ours.items()
            if _hashable(value) != _hashable(theirs[name])
        ),
    ]
