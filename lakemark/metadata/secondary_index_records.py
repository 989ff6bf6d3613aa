"""Creates records of the partitions ``secondary_index_<name>``: the keys of each value's records.

A commit writes a record for each row that it adds to a file group and for each row whose value it
changes, and deletes the records of the old values. The workers that write the files of a commit
compare the keys of the index before and after it (``SecondaryChanges``). Compactions and cleans
change no row, so they change no record. ``secondary_index`` reads the records.
Source: ``createSecondaryIndexRecord`` of ``HoodieMetadataPayload`` and
``SecondaryIndexRecordGenerationUtils`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.hfile import Entries
from lakemark.errors import WriteConflict
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import (
    RecordChanges,
    around_payload,
    check_key_lengths,
    do_without_index,
)
from lakemark.metadata.secondary_columns import SecondaryColumn
from lakemark.metadata.secondary_index import encode_keys, encoded_values
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.key_changes import KeyChanges
from lakemark.model.meta_columns import RECORD_KEY

_TYPE = 7
#: ``isDeleted`` of a record that is not deleted.
_NOT_DELETED = b"\x00"
_NO_KEYS = pa.array([], pa.string())


def index_keys(rows: pa.Table, column: SecondaryColumn) -> pa.Array:
    """Return the key in the index of each row.

    Args:
        rows: rows with their record keys and the indexed column.
        column: the indexed column.
    """
    values = rows.column(column.name).cast(pa.string()).combine_chunks()
    return encode_keys(values, rows.column(RECORD_KEY).cast(pa.string()).combine_chunks())


def secondary_index_changes(stats: Sequence[WriteStat], column: SecondaryColumn) -> RecordChanges:
    """Return the changes of a commit to a secondary index.

    A row that moves to another file group with the same value keeps its record.

    Args:
        stats: the files of the commit, and the file groups that it replaces with other rows.
        column: the indexed column.

    Raises:
        WriteConflict: the index was created after the writer of a file had begun.
    """
    changes = [_collected(stat, column) for stat in stats]
    added = pc.unique(_concat(one.added for one in changes))
    removed = pc.unique(_concat(one.removed for one in changes))
    removed = removed.filter(pc.invert(pc.is_in(removed, value_set=added)))
    return encode_index_keys(added, removed, column)


def encode_index_keys(added: pa.Array, removed: pa.Array, column: SecondaryColumn) -> RecordChanges:
    """Encode the records of some keys of an index, and the deletion of others.

    Args:
        added: distinct keys that ``index_keys`` returned.
        removed: distinct keys that are not in ``added``.
        column: the indexed column.

    Raises:
        InvalidRecords: a value is too long, together with its record key.
    """
    remedy = f"shorten the value, or {do_without_index(column.partition)}"
    check_key_lengths(added, f"a value of column {column.name!r} with its record key", remedy)
    before, after = around_payload(_TYPE, PartitionKind.SECONDARY_INDEX.payload)
    record = pa.scalar(before + _NOT_DELETED + after, pa.binary())
    written = Entries(added.cast(pa.binary()), pa.repeat(record, len(added)))
    changes = RecordChanges.union([RecordChanges(written, removed.cast(pa.binary()))])
    return changes.hashed_by(hashed_part) if column.hashes_values else changes


def hashed_part(keys: pa.BinaryArray) -> pa.Array:
    """Return the part of each key whose hash selects the file group, from version 2 on."""
    return encoded_values(keys.cast(pa.string()))


def _collected(stat: WriteStat, column: SecondaryColumn) -> KeyChanges:
    found = (stat.secondary_changes or {}).get(column)
    if found is None:
        message = (
            f"the table has an index {column.partition} of column {column.name!r}, which was "
            f"created after the commit with {stat.path or stat.file_id} began; write the batch "
            "again"
        )
        raise WriteConflict(message)
    return found


def _concat(parts: Iterable[pa.Array]) -> pa.Array:
    return pa.concat_arrays([_NO_KEYS, *parts])
