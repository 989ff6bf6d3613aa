"""The stored records of a metadata table: Avro to columns.

A record is a ``HoodieMetadataRecord`` with a field for each kind of payload, of which one is
filled. It is read by the schema that it was written with, since every release of Hudi has added
fields; readers ask for the one payload of their partition and get its fields by name. All rows of a
batch are read together (``lakemark.codec.avro_cursors``).

Two payloads are no plain Avro columns: the map of files, whose entries may be many in few records,
and the statistics, whose smallest and largest value are unions of wrappers.
Source: ``HoodieMetadata.avsc`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from lakemark.codec.avro_cursors import Cursors
from lakemark.codec.avro_nodes import root_of
from lakemark.codec.avro_row_reader import read_value
from lakemark.codec.byte_strings import byte_strings
from lakemark.errors import CorruptData
from lakemark.metadata.column_stats.wrapped_values import VALUE_TYPE, WRAPPED, wrapped_reader
from lakemark.metadata.file_entries import FILE_ENTRIES, STORED_FIELDS, read_file_entries

_FILES = "filesystemMetadata"
_STATISTICS = "ColumnStatsMetadata"

#: What readers get of each payload, whichever release of Hudi wrote it; what that one did not know
#: is null.
PAYLOADS: Mapping[str, pa.DataType] = {
    _FILES: FILE_ENTRIES,
    _STATISTICS: pa.struct(
        [
            ("fileName", pa.string()),
            ("columnName", pa.string()),
            ("minValue", WRAPPED),
            ("maxValue", WRAPPED),
            ("valueCount", pa.int64()),
            ("nullCount", pa.int64()),
            ("isDeleted", pa.bool_()),
            ("isTightBound", pa.bool_()),
            ("valueType", VALUE_TYPE),
        ]
    ),
    "BloomFilterMetadata": pa.struct(
        [("type", pa.string()), ("bloomFilter", pa.binary()), ("isDeleted", pa.bool_())]
    ),
    "recordIndexMetadata": pa.struct(
        [
            ("partitionName", pa.string()),
            ("fileIdHighBits", pa.int64()),
            ("fileIdLowBits", pa.int64()),
            ("fileIndex", pa.int32()),
            ("fileId", pa.string()),
            ("instantTime", pa.int64()),
            ("fileIdEncoding", pa.int32()),
            ("position", pa.int64()),
        ]
    ),
    "SecondaryIndexMetadata": pa.struct([("isDeleted", pa.bool_())]),
}

_WRAPPED_FIELDS = ("minValue", "maxValue")

#: Reads the next value of each row.
_Read: TypeAlias = Callable[[Cursors], pa.Array]


class _Field(NamedTuple):
    name: str
    read: _Read


class _Optional(NamedTuple):
    """A type, alone or in a union with null."""

    avro: Mapping[str, object]
    branch: int | None
    null_branch: int | None


def read_payload(values: pa.BinaryArray, avro_schema: str, payload: str, path: str) -> pa.Array:
    """One payload of the records; null where a record has another.

    Args:
        values: a stored record each.
        avro_schema: what they were written with, as JSON.
        payload: name of its field, one of ``PAYLOADS``.
        path: file that holds them, for errors.

    Raises:
        CorruptData: bytes that disagree with the schema, or a schema without that payload.
        Unsupported: statistics of values that this project does not know.
    """
    fields = _fields_in(avro_schema, path)
    strings = byte_strings(values)
    cursors = Cursors(strings.data, strings.offsets[:-1].copy(), strings.offsets[1:], path)
    try:
        columns = {field.name: field.read(cursors) for field in fields}
        cursors.check_finished()
        if payload not in columns:
            raise CorruptData(path, None, f"records with {payload}", str(list(columns)))
        return _conformed(columns[payload], PAYLOADS[payload])
    except pa.ArrowException as error:
        raise CorruptData(path, None, "values of the schema's types", str(error)) from error


def _conformed(column: pa.Array, target: pa.DataType) -> pa.Array:
    """The column with the fields that readers expect."""
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), target)
    if not pa.types.is_struct(target) or column.type == target:
        return column if column.type == target else column.cast(target)
    if not pa.types.is_struct(column.type):
        message = f"{column.type} where fields are expected"
        raise pa.ArrowTypeError(message)
    stored = {field.name for field in column.type}
    children = [
        _conformed(column.field(field.name), field.type)
        if field.name in stored
        else pa.nulls(len(column), field.type)
        for field in target
    ]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=column.is_null())


def _fields_in(avro_schema: str, path: str) -> tuple[_Field, ...]:
    try:
        return _fields_of(avro_schema)
    except CorruptData as error:
        raise CorruptData(path, None, error.expected, error.actual) from error


@lru_cache(maxsize=16)
def _fields_of(avro_schema: str) -> tuple[_Field, ...]:
    """The record's fields, as readers; all files that one release of Hudi wrote have one schema."""
    try:
        record = json.loads(avro_schema)
    except (ValueError, RecursionError) as error:
        raise _not_avro(expected="an Avro schema in JSON", actual=error) from error
    return tuple(_Field(name, _reader(name, avro)) for name, avro in _named(record))


def _named(record: object) -> list[tuple[str, object]]:
    """Names and types of a record's fields."""
    fields = record.get("fields") if isinstance(record, Mapping) else None
    if not isinstance(fields, list) or not all(
        isinstance(field, Mapping) and isinstance(field.get("name"), str) for field in fields
    ):
        raise _not_avro(expected="an Avro record with fields", actual=record)
    named = [(field["name"], field.get("type")) for field in fields]
    if len(dict(named)) < len(named):
        raise _not_avro(expected="fields with a name of their own each", actual=record)
    return named


def _reader(name: str, avro: object) -> _Read:
    if name == _FILES:
        return _files_reader(_optional(avro, "map"))
    if name == _STATISTICS:
        return _statistics_reader(_optional(avro, "record"))
    field = {"name": name, "type": avro}
    root = root_of({"type": "record", "name": "single", "fields": [field]})
    return lambda cursors: read_value(cursors, root).field(0)


def _files_reader(files: _Optional) -> _Read:
    values = files.avro.get("values")
    if tuple(_named(values)) != STORED_FIELDS:
        raise _not_avro(expected=f"files with {STORED_FIELDS}", actual=values)
    return _where_there(files, read_file_entries)


def _statistics_reader(statistics: _Optional) -> _Read:
    readers = {
        name: wrapped_reader(avro)
        if name in _WRAPPED_FIELDS and isinstance(avro, list)
        else _reader(name, avro)
        for name, avro in _named(statistics.avro)
    }

    def read(cursors: Cursors) -> pa.StructArray:
        return pa.StructArray.from_arrays([r(cursors) for r in readers.values()], list(readers))

    return _where_there(statistics, read)


def _where_there(optional: _Optional, read: _Read) -> _Read:
    """Reads a value where the union is not null."""
    if optional.branch is None:
        return read

    def read_union(cursors: Cursors) -> pa.Array:
        branches = cursors.longs()
        valid = branches == optional.branch
        cursors.check(valid | (branches == optional.null_branch), "a branch of the union")
        if not valid.any():
            return pa.nulls(len(cursors))
        picked = cursors.pick(valid)
        values = read(picked)
        cursors.put(valid, picked)
        return values.take(pa.array(np.cumsum(valid) - 1, mask=~valid))

    return read_union


def _optional(avro: object, kind: str) -> _Optional:
    branches = avro if isinstance(avro, list) else [avro]
    matching = [
        (place, branch)
        for place, branch in enumerate(branches)
        if isinstance(branch, Mapping) and branch.get("type") == kind
    ]
    if len(matching) != 1 or len(branches) > 1 + branches.count("null"):
        raise _not_avro(expected=f"a {kind}, or null", actual=avro)
    place, branch = matching[0]
    if not isinstance(avro, list):
        return _Optional(branch, None, None)
    return _Optional(branch, place, branches.index("null") if "null" in branches else None)


def _not_avro(*, expected: str, actual: object) -> CorruptData:
    return CorruptData("Avro schema", None, expected, repr(actual)[:200])
