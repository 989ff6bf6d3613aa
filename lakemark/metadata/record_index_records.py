"""Creates records of the partition ``record_index``: the location of each record key.

A commit writes a record for each key that it adds to a file group, and deletes the record of each
key that it removes from the table. An update changes no record, so a record has the instant of the
commit that added its key. Compactions, cleans and commits without rows change no location.
``record_index`` reads the records.

A file id that begins with a UUID is stored as the two halves of the UUID and the number after it.
Any other file id is stored as text. The key is not in the record, so all keys that a commit adds to
one file group have the same record.
Source: ``createRecordIndexUpdate`` of ``HoodieMetadataPayload``, ``BaseFileRecordParsingUtils`` and
``convertMetadataToRecordIndexRecords`` of ``HoodieTableMetadataUtil``, Apache Hudi 1.2.0.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa

from lakemark.codec.hfile import Entries
from lakemark.codec.varint import zigzag
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.partition_shards import MAX_GROUPS, MIN_GROUPS
from lakemark.metadata.record_changes import (
    RecordChanges,
    around_payload,
    check_key_lengths,
    do_without_index,
)
from lakemark.model.file_slice import FileGroupId
from lakemark.timeline.clock import TimelineClock

_TYPE = 5
_SET, _NULL = b"\x02", b"\x00"
_AS_UUID, _AS_TEXT = 0, 1
_NO_NUMBER = -1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

#: The number of file groups of a small record index
#: (``hoodie.metadata.global.record.level.index.min.filegroup.count``).
MIN_RECORD_INDEX_GROUPS = 10

# The other settings from which Apache Hudi computes the number of file groups: the bytes of a
# record, the growth of the table, and the largest file of a file group.
_RECORD_BYTES, _GROWTH, _MAX_FILE_BYTES, _MOST_GROUPS = 48, 2, 1 << 30, 10_000

#: A UUID, and the number of the file that old releases omit.
_UUID = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-(0|[1-9][0-9]{0,8}))?")


class KeysOfGroup(NamedTuple):
    """Keys whose rows are in one file group.

    Attributes:
        group: the file group.
        instant: the instant that the records of the keys name.
        keys: distinct strings.
    """

    group: FileGroupId
    instant: str
    keys: pa.Array


def encode_locations(
    added: Iterable[KeysOfGroup], removed: pa.Array, clock: TimelineClock
) -> RecordChanges:
    """Encode the locations of keys, and the deletion of keys.

    Args:
        added: the keys of some file groups; no key is in two of them.
        removed: keys that are in no file group any more, as strings.
        clock: the clock of the table, whose time zone the instants have.

    Raises:
        InvalidRecords: a key is too long.
    """
    nothing = Entries(pa.array([], pa.binary()), pa.array([], pa.binary()))
    deleted = RecordChanges(nothing, removed.cast(pa.binary()))
    return RecordChanges.union([*(_records_of(one, clock) for one in added), deleted])


def count_record_index_groups(record_count: int) -> int:
    """Return the number of file groups of a new record index of a table with so many records.

    Source: ``estimateFileGroupCount`` of ``HoodieTableMetadataUtil``, Apache Hudi 1.2.0.
    """
    return min(max(_needed_groups(record_count), MIN_RECORD_INDEX_GROUPS), _MOST_GROUPS)


def count_partition_groups(record_count: int) -> int:
    """Return the number of file groups of a partition in a new partitioned record index.

    Source: as for ``count_record_index_groups``.
    """
    return min(max(_needed_groups(record_count), MIN_GROUPS), MAX_GROUPS)


def _needed_groups(record_count: int) -> int:
    return record_count * _GROWTH // (_MAX_FILE_BYTES // _RECORD_BYTES)


def millis_of(instant: str, clock: TimelineClock) -> int:
    """Return an instant time in milliseconds since 1970, as records of the index contain it."""
    return (clock.parse(instant) - _EPOCH) // _MILLISECOND


def _records_of(added: KeysOfGroup, clock: TimelineClock) -> RecordChanges:
    remedy = f"shorten the key, or {do_without_index(PartitionKind.RECORD_INDEX.stored_name)}"
    check_key_lengths(added.keys, "a record key", remedy)
    record = _encode_record(added.group, millis_of(added.instant, clock))
    values = pa.repeat(pa.scalar(record, pa.binary()), len(added.keys))
    return RecordChanges(Entries(added.keys.cast(pa.binary()), values), pa.array([], pa.binary()))


def _encode_record(group: FileGroupId, millis: int) -> bytes:
    before, after = around_payload(_TYPE, PartitionKind.RECORD_INDEX.payload)
    high, low, number, text, encoding = _encode_file_id(group.file_id)
    fields = (
        _text(group.partition_path),
        *map(zigzag, (high, low, number)),
        _text(text),
        zigzag(millis),
    )
    present = b"".join(_SET + field for field in fields)
    return b"".join([before, present, zigzag(encoding), _NULL, after])


def _encode_file_id(file_id: str) -> tuple[int, int, int, str, int]:
    """Return the two halves of the UUID, the number, the text and the encoding of a file id."""
    match = _UUID.fullmatch(file_id)
    if match is None:
        return _NO_NUMBER, _NO_NUMBER, _NO_NUMBER, file_id, _AS_TEXT
    octets = uuid.UUID(match[1]).bytes
    halves = (int.from_bytes(octets[at : at + 8], "big", signed=True) for at in (0, 8))
    number = _NO_NUMBER if match[2] is None else int(match[2])
    high, low = halves
    return high, low, number, "", _AS_UUID


def _text(value: str) -> bytes:
    content = value.encode()
    return zigzag(len(content)) + content
