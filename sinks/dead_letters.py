"""The dead-letter table: it contains each rejected record, its origin, and the reason.

This is an ordinary Hudi table. Its record key is topic, partition and offset. So a batch that is
written again after a crash does not add a record twice. ``sinks.letter_layout`` describes its
partitions.

A replay (``sinks.hudi.replay``) changes these columns of a dead letter:

=====================  ===========  ===========
state of the letter    replayed_in  resolved_at
=====================  ===========  ===========
open                   null         null
claimed by a replay    an instant   null
resolved               an instant   a time
=====================  ===========  ===========

The instant is that of the commit to the pipeline's table that contains the rows of the record. A
claimed letter is resolved if this commit was published, and open if it was not. A resolved letter
is open again if this commit was rolled back or restored away (``sinks.letter_claims``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from lakemark.codec.varint import unsigned, zigzag
from lakemark.keygen.key_generator import EMPTY_PART, NULL_PART
from lakemark.model.meta_columns import META_COLUMNS, RECORD_KEY
from sinks.letter_layout import KEY_FIELDS
from transforms.rejects import REJECTS_SCHEMA

#: The columns that every dead-letter table has, whichever version of lakemark created it.
_FIRST_COLUMNS = frozenset({*KEY_FIELDS, "timestamp", "key", "value", "reason", "stage"})

#: The columns of ``describe_first``. The time of a record may be one that Python lacks.
_SHOWN_COLUMNS = [*KEY_FIELDS, "reason"]

#: The columns from which ``find_records`` finds the records of a table.
KEY_COLUMNS = (RECORD_KEY, "key", "value")

_IN_WORD = re.compile(rb"[\w-]")

#: The length of what a schema registry's serializers write before a record.
_SCHEMA_BYTES = 5


def first_reject(changes: pa.Table) -> str | None:
    """Return origin and reason of the first dead letter; None if no change is a dead letter."""
    names = changes.schema.names[len(META_COLUMNS) :][: len(REJECTS_SCHEMA)]
    if names != REJECTS_SCHEMA.names or not changes.num_rows:
        return None
    return describe_first(changes)


def describe_first(letters: pa.Table) -> str:
    """Return origin and reason of the first of some dead letters; at least one."""
    (first,) = letters.select(_SHOWN_COLUMNS).slice(0, 1).to_pylist()
    return f"{first['topic']} {first['partition']}:{first['offset']}: {first['reason']}"


def is_dead_letter_table(schema: pa.Schema | None) -> bool:
    """Return whether a table has the columns of a dead-letter table."""
    return schema is not None and _FIRST_COLUMNS <= set(schema.names)


def with_all_columns(letters: pa.Table) -> pa.Table:
    """Return dead letters with all columns of a dead letter, and their record key if it was read.

    Columns that were not read are null, and so are those that an earlier version did not write.
    """
    columns = [
        letters.column(field.name).cast(field.type)
        if field.name in letters.column_names
        else pa.nulls(letters.num_rows, field.type)
        for field in REJECTS_SCHEMA
    ]
    table = pa.table(columns, schema=REJECTS_SCHEMA)
    if RECORD_KEY not in letters.column_names:
        return table
    return table.append_column(RECORD_KEY, letters.column(RECORD_KEY).cast(pa.string()))


def find_records(
    batches: Iterable[pa.RecordBatch], record_keys: Iterable[str], key_fields: Sequence[str]
) -> list[str]:
    """Return the record keys of the dead letters that contain some records of another table.

    A dead letter contains a record if its message key is the record key, or if an object in its
    JSON message key or value, at any depth, has the record key's fields. A message key or value
    that is not JSON contains a record if the value of its only key field occurs there as a word, or
    as a string of Avro or Protocol Buffers.

    Args:
        batches: dead letters, with the columns ``KEY_COLUMNS``.
        record_keys: the keys of the records, as the other table stores them.
        key_fields: the fields of the other table's record key.
    """
    wanted = frozenset(record_keys)
    words = _Words.of(wanted, key_fields)
    found = []
    for row in chain.from_iterable(batch.to_pylist() for batch in batches):
        value, message_key = row["value"] or b"", row["key"] or b""
        is_key = message_key in words.values or message_key.decode(errors="replace") in wanted
        if is_key or any(
            _has_record(one, wanted, key_fields, words) for one in (value, message_key)
        ):
            found.append(row[RECORD_KEY])
    return found


@dataclass(frozen=True, slots=True)
class _Words:
    """The values of the only field of a record key; none if there are several fields.

    Attributes:
        values: the values, as the record keys contain them, in UTF-8.
        lengths: the lengths of the values, in bytes.
    """

    values: frozenset[bytes]
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, record_keys: Collection[str], key_fields: Sequence[str]) -> _Words:
        if len(key_fields) != 1:
            return cls(frozenset(), ())
        # A complex key of one field may be stored with the name of the field.
        named = (key.removeprefix(f"{key_fields[0]}:").encode() for key in record_keys)
        values = frozenset(value for value in named if value)
        return cls(values, tuple(sorted({len(value) for value in values})))

    def occur_in(self, content: bytes) -> bool:
        """Return whether one of the values is a word of the content, or a string with its length.

        The time does not grow with the number of values, but with that of their lengths.
        """
        return any(
            content[at : at + length] in self.values and _is_whole(content, at, length)
            for length in self.lengths
            for at in range(len(content) - length + 1)
        )


def _is_whole(content: bytes, at: int, length: int) -> bool:
    """Return whether a part of some bytes is a word, or follows its length.

    The length of an Avro string, and that of Protocol Buffers, may be the code of a letter. For
    example, a UUID in Avro follows the letter H.
    """
    if content[:at].endswith((zigzag(length), unsigned(length))):
        return True
    around = content[max(at - 1, 0) : at] + content[at + length : at + length + 1]
    return not _IN_WORD.search(around)


def _has_record(
    value: bytes,
    wanted: frozenset[str],
    key_fields: Sequence[str],
    words: _Words,
) -> bool:
    try:
        # JSON with a schema of a registry follows a zero and the number of the schema.
        tree = json.loads(value[_SCHEMA_BYTES:] if value[:1] == b"\0" else value)
    except (ValueError, RecursionError):
        return words.occur_in(value)
    if not isinstance(tree, dict | list):
        return words.occur_in(value)
    return any(not wanted.isdisjoint(_keys_of(one, key_fields)) for one in _objects_in(tree))


def _objects_in(tree: object) -> Iterator[Mapping[str, object]]:
    """Yield the objects of a JSON value, at any depth."""
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _keys_of(row: Mapping[str, object], key_fields: Sequence[str]) -> set[str]:
    """Return the record keys that an object has, in each encoding; none without any key field."""
    values = [_text_at(row, name.split(".")) for name in key_fields]
    if all(value is None for value in values):
        return set()
    parts = [NULL_PART if value is None else value or EMPTY_PART for value in values]
    named = ",".join(f"{name}:{one}" for name, one in zip(key_fields, parts, strict=True))
    return {named, str(values[0])} if len(values) == 1 else {named}


def _text_at(row: Mapping[str, object], names: Sequence[str]) -> str | None:
    """Return the value of a field that may be inside of objects, as a record key contains it."""
    value: object = row
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if value is None or isinstance(value, str) else json.dumps(value)
