"""What one commit changes in one partition of the metadata table, ready for its files.

A record is stored as a ``HoodieMetadataRecord``: five meta fields that are null, the key, which is
empty since the HFile has it, the type, and one payload among fields that are null.
Source: ``HoodieMetadata.avsc``, ``HoodieMetadataPayload`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.avro_binary import Piece, constant, join
from lakemark.codec.avro_container import load_schema
from lakemark.codec.hfile import Entries
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.shards import shards_of
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

#: What a schema says to readers alone.
_WORDS = ("doc", "avro.java.string")


@cache
def stored_schema() -> str:
    """The schema of stored records, as blocks and files of the metadata table name it."""
    return to_json(load_schema("HoodieMetadataRecord"))


@dataclass(frozen=True, slots=True)
class RecordChanges:
    """Records of one partition, or of one of its file groups.

    Attributes:
        written: keys, strictly ascending, and stored records.
        deleted: keys of records that go, binary, strictly ascending, none of them in ``written``.
    """

    written: Entries
    deleted: pa.BinaryArray

    @classmethod
    def of(
        cls, keys: Sequence[bytes], records: pa.LargeBinaryArray, deleted: Iterable[bytes] = ()
    ) -> RecordChanges:
        """The changes in any order; of no key more than one."""
        written = _sorted(Entries(pa.array(keys, pa.binary()), records.cast(pa.binary())))
        return cls(written, pa.array(sorted(set(deleted)), pa.binary()))

    @classmethod
    def united(cls, parts: Iterable[RecordChanges]) -> RecordChanges:
        """All changes of the parts, which have no key in common."""
        taken = list(parts)
        keys = [part.written.keys for part in taken]
        values = [part.written.values for part in taken]
        nothing = pa.array([], pa.binary())
        written = Entries(pa.concat_arrays([nothing, *keys]), pa.concat_arrays([nothing, *values]))
        deleted = pa.concat_arrays([nothing, *(part.deleted for part in taken)])
        return cls(_sorted(written), deleted.take(pc.array_sort_indices(deleted)))

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return len(self.written.keys) + len(self.deleted) == 0

    def by_shard(self, count: int) -> list[RecordChanges]:
        """The changes of each of ``count`` file groups, in the order of their numbers."""
        written = pa.array(shards_of(self.written.keys, count))
        deleted = pa.array(shards_of(self.deleted, count))
        return [
            RecordChanges(
                Entries(*(column.filter(pc.equal(written, number)) for column in self.written)),
                self.deleted.filter(pc.equal(deleted, number)),
            )
            for number in range(count)
        ]


def stored_records(
    record_type: int, payload: str, pieces: Sequence[Piece], count: int
) -> pa.LargeBinaryArray:
    """Stored records, of the pieces of their payloads.

    Args:
        record_type: number of the kind of record.
        payload: field that holds the pieces.
        pieces: of ``count`` rows each.
        count: of records.
    """
    before, after = around_payload(record_type, payload)
    return join([constant(before, count), *pieces, constant(after, count)]).to_arrow()


def around_payload(record_type: int, payload: str) -> tuple[bytes, bytes]:
    """What stands before and behind a payload in a stored record."""
    place = _PAYLOAD_ORDER.index(payload)
    # Nulls, the empty key, the type; a null for each payload before, and the branch of this one.
    before = bytes(_META_FIELDS + 1) + bytes([record_type << 1]) + bytes(place) + b"\x02"
    return before, bytes(len(_PAYLOAD_ORDER) - place - 1)


def _sorted(entries: Entries) -> Entries:
    order = pc.array_sort_indices(entries.keys)
    return Entries(entries.keys.take(order), entries.values.take(order))


@cache
def is_stored_schema(text: str) -> bool:
    """Whether a schema is that of ``stored_schema``; Apache's own tells more of it in words."""
    return bool(_bare(json.loads(text)) == _bare(json.loads(stored_schema())))


def _bare(schema: object) -> object:
    if isinstance(schema, dict):
        return {key: _bare(value) for key, value in schema.items() if key not in _WORDS}
    return [_bare(one) for one in schema] if isinstance(schema, list) else schema
