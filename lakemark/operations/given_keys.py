"""Converts the record keys that a caller passes, as text or as columns of the record key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from lakemark.errors import InvalidConfig, InvalidRecords
from lakemark.keygen.key_generator import KeyGenerator
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.operations.incoming_rows import in_table_columns

#: Record keys as text, or rows with the columns of the record key.
Keys: TypeAlias = (
    pa.Table
    | pa.RecordBatch
    | pa.Array
    | pa.ChunkedArray
    | Iterable[str]
    | Iterable[Mapping[str, Any]]
)

_REMEDY = "pass a list of record keys as text, or rows with the columns of the record key"


def record_keys_of(
    given: Keys, generator: KeyGenerator, columns: pa.Schema, table_url: str
) -> list[str]:
    """Return the record keys that a caller passes, in the form that the table stores.

    Args:
        given: the keys. An iterator is read only once.
        generator: the generator of the table's record keys.
        columns: the columns of the table, without meta columns.
        table_url: the table's URL, for errors.

    Raises:
        InvalidConfig: ``given`` does not contain keys, or lacks a column of the record key.
        InvalidRecords: a key is null.
    """
    fields = generator.config.record_key_fields or (RECORD_KEY,)
    listed = _as_table_or_texts(given, fields)
    if isinstance(listed, list):
        return listed
    missing = [name for name in fields if name.partition(".")[0] not in listed.column_names]
    if missing:
        message = f"keys lack column {missing[0]!r}; the record key is {', '.join(fields)}"
        raise InvalidConfig(message)
    if generator.config.has_automatic_keys:
        return _texts(listed.column(RECORD_KEY))
    own = {name.partition(".")[0] for name in fields}
    needed = pa.schema([field for field in columns if field.name in own])
    rows = in_table_columns(listed.select(needed.names), needed, table_url)
    return _texts(generator.record_keys(rows))


def _texts(keys: pa.Array | pa.ChunkedArray) -> list[str]:
    if keys.null_count:
        message = f"{keys.null_count} of {len(keys)} keys are null or empty; leave them out"
        raise InvalidRecords(message)
    texts: list[str] = keys.to_pylist()
    return texts


def _as_table_or_texts(given: Keys, fields: Sequence[str]) -> pa.Table | list[str]:
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if isinstance(given, pa.RecordBatchReader):
        return given.read_all()
    if isinstance(given, pa.Array | pa.ChunkedArray):
        return _of_array(given, fields)
    if type(given).__module__.partition(".")[0] == "pandas" and hasattr(given, "columns"):
        # An iteration over a data frame yields the names of its columns.
        message = "keys are a pandas DataFrame; pass pyarrow.Table.from_pandas(keys)"
        raise InvalidConfig(message)
    if isinstance(given, str | bytes | bytearray | Mapping) or not isinstance(given, Iterable):
        message = f"keys is {given!r}, of type {type(given).__name__}; {_REMEDY}"
        raise InvalidConfig(message)
    return _of_values(list(given))


def _of_array(given: pa.Array | pa.ChunkedArray, fields: Sequence[str]) -> pa.Table | list[str]:
    """Return the keys in an array of text; put any other array into the key column."""
    if given.null_count:
        message = f"{given.null_count} of {len(given)} keys are null; leave them out"
        raise InvalidRecords(message)
    plain = given.type.value_type if pa.types.is_dictionary(given.type) else given.type
    if pa.types.is_string(plain) or pa.types.is_large_string(plain):
        texts: list[str] = given.to_pylist()
        return texts
    if len(fields) > 1 or "." in fields[0]:
        key = ", ".join(fields)
        message = f"keys is an array of {given.type}, but the record key is {key}; {_REMEDY}"
        raise InvalidConfig(message)
    return pa.table({fields[0]: given})


def _of_values(values: list[Any]) -> pa.Table | list[str]:
    if all(isinstance(one, str) for one in values):
        return values
    kind = Mapping if isinstance(values[0], Mapping) else str
    wrong = [one for one in values if not isinstance(one, kind)]
    if wrong:
        message = f"keys contains {wrong[0]!r}, of type {type(wrong[0]).__name__}; {_REMEDY}"
        raise InvalidConfig(message)
    try:
        return pa.Table.from_pylist([dict(one) for one in values])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        message = f"keys have values of different types: {error}; {_REMEDY}"
        raise InvalidConfig(message) from error
