"""The changes of one commit to one partition of the metadata table, as stored records.

A stored record is a ``HoodieMetadataRecord``. It has five meta fields (all null), the key, the type
of the record, and the payloads, of which only one is not null. The key is empty, because the HFile
contains it. Source: ``HoodieMetadata.avsc``, ``HoodieMetadataPayload`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.avro_binary import Piece, constant, join
from lakemark.codec.avro_container import load_schema
from lakemark.codec.hfile import Entries
from lakemark.codec.hfile.hfile_data_block import MAX_KEY_BYTES
from lakemark.errors import InvalidRecords
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.shards import divide_rows, shards_of
from lakemark.schema.avro import to_json

_META_FIELDS = 5

#: Payloads in the order of their fields.
_PAYLOAD_ORDER = (
    PartitionKind.FILES.payload,
    PartitionKind.BLOOM_FILTERS.payload,
    PartitionKind.COLUMN_STATS.payload,
    PartitionKind.RECORD_INDEX.payload,
    PartitionKind.SECONDARY_INDEX.payload,
)

#: Returns the part of each key whose hash selects the file group of the key.
HashedPart: TypeAlias = Callable[[pa.BinaryArray], pa.Array]

#: Attributes of a schema that do not affect the encoding.
_DOCUMENTATION = ("doc", "avro.java.string")


@cache
def stored_schema() -> str:
    """Return the schema of stored records, as blocks and files of the metadata table contain it."""
    return to_json(load_schema("HoodieMetadataRecord"))


@dataclass(frozen=True, slots=True)
class RecordChanges:
    """Changed records of one partition, or of one of its file groups.

    Attributes:
        written: keys in strictly ascending order, with their stored records.
        deleted: keys of deleted records as binary, in strictly ascending order; none of these keys
            is in ``written``.
        hashed_part: returns the part of each key whose hash selects the file group of the key; None
            if it is the whole key.
    """

    written: Entries
    deleted: pa.BinaryArray
    hashed_part: HashedPart | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls, keys: Sequence[bytes], records: pa.LargeBinaryArray, deleted: Iterable[bytes] = ()
    ) -> RecordChanges:
        """Create changes from keys in any order; each key of ``keys`` occurs once."""
        written = _sorted(Entries(pa.array(keys, pa.binary()), records.cast(pa.binary())))
        return cls(written, pa.array(sorted(set(deleted)), pa.binary()))

    @classmethod
    def union(cls, parts: Iterable[RecordChanges]) -> RecordChanges:
        """Return all changes of the parts, which have no key in common."""
        listed = list(parts)
        keys = [part.written.keys for part in listed]
        values = [part.written.values for part in listed]
        empty = pa.array([], pa.binary())
        written = Entries(pa.concat_arrays([empty, *keys]), pa.concat_arrays([empty, *values]))
        deleted = pa.concat_arrays([empty, *(part.deleted for part in listed)])
        return cls(_sorted(written), deleted.take(pc.array_sort_indices(deleted)))

    def hashed_by(self, part: HashedPart) -> RecordChanges:
        """Return these changes, of keys of which only a part selects the file group."""
        return replace(self, hashed_part=part)

    @property
    def nbytes(self) -> int:
        """The size of the changes in memory, in bytes."""
        return sum(column.nbytes for column in (*self.written, self.deleted))

    @property
    def is_empty(self) -> bool:
        """Whether there is no change."""
        return len(self.written.keys) + len(self.deleted) == 0

    def shards(self, file_ids: Sequence[str]) -> Iterator[ShardChanges]:
        """Divide the changes among the file groups of the partition.

        Args:
            file_ids: the ids of the file groups, in the order of their numbers.
        """
        for number, part in enumerate(self.by_shard(len(file_ids))):
            if not part.is_empty:
                yield ShardChanges(file_ids[number], number, part)

    def by_shard(self, count: int) -> list[RecordChanges]:
        """Divide the changes among ``count`` file groups, in the order of their numbers."""
        written = divide_rows(self.written, self._shards_of(self.written.keys, count), count)
        deleted = divide_rows([self.deleted], self._shards_of(self.deleted, count), count)
        return [
            RecordChanges(Entries(*columns), keys)
            for columns, (keys,) in zip(written, deleted, strict=True)
        ]

    def _shards_of(self, keys: pa.BinaryArray, count: int) -> npt.NDArray[np.int64]:
        return shards_of(keys if self.hashed_part is None else self.hashed_part(keys), count)


@dataclass(frozen=True, slots=True)
class ShardChanges:
    """The changes of one commit to one file group (shard) of the metadata table.

    Attributes:
        file_id: id of the file group.
        number: number of the file group in its series.
        changes: the changes; they may be empty if the commit creates the file group.
        is_new: whether the commit creates the file group.
    """

    file_id: str
    number: int
    changes: RecordChanges
    is_new: bool = False


def stored_records(
    record_type: int, payload: str, pieces: Sequence[Piece], count: int
) -> pa.LargeBinaryArray:
    """Build stored records from the pieces of their payloads.

    Args:
        record_type: number of the record type.
        payload: name of the payload's field.
        pieces: encoded pieces of the payload, each with ``count`` rows.
        count: number of records.
    """
    before, after = around_payload(record_type, payload)
    return join([constant(before, count), *pieces, constant(after, count)]).to_arrow()


def check_key_lengths(keys: pa.Array, what: str, remedy: str) -> None:
    """Check that a metadata table can store records of these keys.

    Args:
        keys: the keys, as strings.
        what: names the longest key in the error, of which it states the size.
        remedy: what a user can do about it.

    Raises:
        InvalidRecords: a key is too long.
    """
    longest = pc.max(pc.binary_length(keys)).as_py() or 0
    if longest > MAX_KEY_BYTES:
        message = (
            f"{what} has {longest:,} bytes, but the metadata table stores keys of at most "
            f"{MAX_KEY_BYTES:,} bytes, so nothing was written; {remedy}"
        )
        raise InvalidRecords(message)


def do_without_index(name: str) -> str:
    """Return a remedy for errors of an index, which may be new or exist.

    Args:
        name: the name of the index, or of its partition.
    """
    return f"do without the index (if it exists: lakemark table index drop TABLE {name} --run)"


def around_payload(record_type: int, payload: str) -> tuple[bytes, bytes]:
    """Return the bytes before and after a payload in a stored record."""
    position = _PAYLOAD_ORDER.index(payload)
    # Null meta fields, the empty key, the type, a null for each earlier payload, and the union
    # branch of this payload.
    before = bytes(_META_FIELDS + 1) + bytes([record_type << 1]) + bytes(position) + b"\x02"
    return before, bytes(len(_PAYLOAD_ORDER) - position - 1)


def _sorted(entries: Entries) -> Entries:
    order = pc.array_sort_indices(entries.keys)
    return Entries(entries.keys.take(order), entries.values.take(order))


@cache
def is_stored_schema(text: str) -> bool:
    """Return whether a schema equals ``stored_schema``, apart from documentation."""
    return bool(_strip(json.loads(text)) == _strip(json.loads(stored_schema())))


def _strip(schema: object) -> object:
    """Remove the documentation from a schema."""
    if isinstance(schema, dict):
        return {key: _strip(value) for key, value in schema.items() if key not in _DOCUMENTATION}
    return [_strip(one) for one in schema] if isinstance(schema, list) else schema
