"""Decodes the stored records of a metadata table: Avro to columns.

A record is a ``HoodieMetadataRecord`` with one field for each kind of payload; only one of these
fields is not null. A record is decoded with the schema that it was written with, because every
release of Hudi has added fields. Readers request the payload of their partition, and get its fields
by name. All rows of a batch are decoded together (``lakemark.codec.avro_cursors``).

Two payloads need their own decoders. One is the map of files, which may have many entries in few
records. The other is the statistics, whose smallest and largest values are unions of wrappers.
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
from lakemark.metadata.column_stats.decode import VALUE_TYPE, WRAPPED, wrapped_reader
from lakemark.metadata.file_entries import FILE_ENTRIES, STORED_FIELDS, read_file_entries

_FILES = "filesystemMetadata"
_STATISTICS = "ColumnStatsMetadata"

#: The fields of each payload that readers get. A field is null if the release of Hudi that wrote
#: the record did not have it.
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
            ("totalSize", pa.int64()),
            ("totalUncompressedSize", pa.int64()),
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
    """An Avro type, and the positions of the type and of null if they form a union."""

    avro: Mapping[str, object]
    branch: int | None
    null_branch: int | None


def read_payload(values: pa.BinaryArray, avro_schema: str, payload: str, path: str) -> pa.Array:
    """Decode one payload of each record; null if a record has a different payload.

    Args:
        values: stored records.
        avro_schema: the schema that the records were written with, as JSON.
        payload: name of the payload's field, one of ``PAYLOADS``.
        path: path of the file with the records, for errors.

    Raises:
        CorruptData: bytes do not match the schema, or the schema lacks the payload.
        Unsupported: statistics have values of an unknown type.
    """
    fields = _fields_in(avro_schema, path)
    strings = byte_strings(values)
    cursors = Cursors(strings.data, strings.offsets[:-1].copy(), strings.offsets[1:], path)
    try:
        columns = {field.name: field.read(cursors) for field in fields}
        cursors.check_finished()
        if payload not in columns:
            raise CorruptData(path, None, f"records with {payload}", str(list(columns)))
        return _conform(columns[payload], PAYLOADS[payload])
    except pa.ArrowException as error:
        raise CorruptData(path, None, "values of the schema's types", str(error)) from error


def _conform(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert a column to the fields that readers expect; fields that it lacks become null."""
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), target)
    if not pa.types.is_struct(target) or column.type == target:
        return column if column.type == target else column.cast(target)
    if not pa.types.is_struct(column.type):
        message = f"expected a struct, found {column.type}"
        raise pa.ArrowTypeError(message)
    stored = {field.name for field in column.type}
    children = [
        _conform(column.field(field.name), field.type)
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
    """Return a reader for each field of the record.

    The result is cached, because all files of one release of Hudi have the same schema.
    """
    try:
        record = json.loads(avro_schema)
    except (ValueError, RecursionError) as error:
        raise _not_avro(expected="an Avro schema in JSON", actual=error) from error
    return tuple(_Field(name, _reader(name, avro)) for name, avro in _named(record))


def _named(record: object) -> list[tuple[str, object]]:
    """Return the names and types of a record's fields."""
    fields = record.get("fields") if isinstance(record, Mapping) else None
    if not isinstance(fields, list) or not all(
        isinstance(field, Mapping) and isinstance(field.get("name"), str) for field in fields
    ):
        raise _not_avro(expected="an Avro record with fields", actual=record)
    named = [(field["name"], field.get("type")) for field in fields]
    if len(dict(named)) < len(named):
        raise _not_avro(expected="fields with distinct names", actual=record)
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
    return _read_unless_null(files, read_file_entries)


def _statistics_reader(statistics: _Optional) -> _Read:
    readers = {
        name: wrapped_reader(avro)
        if name in _WRAPPED_FIELDS and isinstance(avro, list)
        else _reader(name, avro)
        for name, avro in _named(statistics.avro)
    }

    def read(cursors: Cursors) -> pa.StructArray:
        return pa.StructArray.from_arrays([r(cursors) for r in readers.values()], list(readers))

    return _read_unless_null(statistics, read)


def _read_unless_null(optional: _Optional, read: _Read) -> _Read:
    """Return a function that reads a value unless the union is null."""
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
        (number, branch)
        for number, branch in enumerate(branches)
        if isinstance(branch, Mapping) and branch.get("type") == kind
    ]
    if len(matching) != 1 or len(branches) > 1 + branches.count("null"):
        raise _not_avro(expected=f"a {kind}, or null", actual=avro)
    number, branch = matching[0]
    if not isinstance(avro, list):
        return _Optional(branch, None, None)
    return _Optional(branch, number, branches.index("null") if "null" in branches else None)


def _not_avro(*, expected: str, actual: object) -> CorruptData:
    return CorruptData("Avro schema", None, expected, repr(actual)[:200])
