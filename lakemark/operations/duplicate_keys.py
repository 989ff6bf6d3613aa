"""Finds the rows of an insert whose record keys are already stored.

Source: ``hoodie.datasource.insert.dup.policy`` and ``DataSourceUtils.handleDuplicates`` of Apache
Hudi 1.2.0. Apache Hudi also drops a row whose key is in a base file, although a log deletes it;
lakemark inserts such a row again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidRecords, Refused
from lakemark.execution.runner import Runner
from lakemark.index.key_search import SearchedGroup, find_live_keys
from lakemark.merge.key_codes import key_codes
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.assigned_changes import AssignedChanges
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.write.partitioner import Bucket, divide

Mask = npt.NDArray[np.bool_]

_ROW = "#row"


class Duplicates(StrEnum):
    """What an insert does with a row whose key is already stored in the same partition.

    Attributes:
        ALLOW: keys are not searched (``none`` in Apache Hudi). In a table without a bucket index,
            the row is stored next to the other one. In a table with buckets, rows are merged.
        DROP: the row is skipped. New rows with the same key are merged.
        FAIL: nothing is written. Two rows of the insert with one key are refused, too.
    """

    ALLOW = "allow"
    DROP = "drop"
    FAIL = "fail"


def find_stored_rows(
    reader: FileGroupReader, runner: Runner, changes: pa.Table, assigned: AssignedChanges
) -> Mask:
    """Return which changes have a key with a live row in the file group of the change.

    Args:
        reader: a reader of the table.
        runner: searches the file groups.
        changes: the changes.
        assigned: the file group of each change, which contains the key if any file group does.

    Raises:
        SnapshotChanged: a file of the table was deleted.
        CorruptData: a file is damaged.
    """
    rows = changes.select([RECORD_KEY, PARTITION_PATH]).append_column(
        _ROW, pa.array(np.arange(changes.num_rows))
    )
    assignment = assigned.assignment

    def search(part: tuple[Bucket, pa.Table]) -> npt.NDArray[np.int64]:
        bucket, some = part
        current = assignment.slices.get(bucket)
        if current is None:
            return np.empty(0, np.int64)
        group = SearchedGroup(assignment.readable.get(current.group, current), current)
        keys = pc.unique(some.column(RECORD_KEY).combine_chunks())
        stored = find_live_keys(reader, group, keys)
        is_stored = pc.is_in(some.column(RECORD_KEY), value_set=stored)
        found: npt.NDArray[np.int64] = some.column(_ROW).filter(is_stored).to_numpy()
        return found

    mask: Mask = np.zeros(changes.num_rows, np.bool_)
    for found in runner.map(search, divide(rows, assigned.numbers)):
        mask[found] = True
    return mask


def check_no_duplicates(changes: pa.Table, is_stored: Mask, table_url: str) -> None:
    """Check that no two changes have one key in one partition, and that no key is stored.

    Raises:
        InvalidRecords: a key is stored, or two changes have it. The message names one.
    """
    keys = changes.column(RECORD_KEY)
    if is_stored.any():
        first = keys[int(np.flatnonzero(is_stored)[0])].as_py()
        message = (
            f"{int(is_stored.sum())} of {changes.num_rows} rows have record keys that table "
            f"{table_url} already contains, such as {first!r}; nothing was written; pass "
            "duplicates='drop' to skip these rows, or use upsert"
        )
        raise InvalidRecords(message)
    codes = key_codes(changes, [PARTITION_PATH, RECORD_KEY])
    if not codes.are_unique:
        repeated = np.bincount(codes.codes)[codes.codes] > 1
        first = keys[int(np.flatnonzero(repeated)[0])].as_py()
        message = (
            f"several of the rows for table {table_url} have the record key {first!r}; nothing "
            "was written; pass each key once, or use upsert"
        )
        raise InvalidRecords(message)


def check_no_other_rows(chosen: pa.Table, stored: pa.Table, group: Sequence[str]) -> None:
    """Check that the rows to delete are all rows of their keys in their file groups.

    A delete names a key, so that it deletes all rows of the key in a file group.

    Args:
        chosen: the rows to delete.
        stored: all rows of their keys.
        group: the columns that identify the file group of a row.

    Raises:
        Refused: a row of a key is not chosen, but its file group has a chosen row of the key.
    """
    if chosen.num_rows == stored.num_rows:
        return
    counted = [
        rows.group_by([*group, RECORD_KEY]).aggregate([([], "count_all")])
        for rows in (chosen, stored)
    ]
    both = counted[0].join(counted[1], [*group, RECORD_KEY], right_suffix="_stored")
    kept = both.filter(pc.less(both["count_all"], both["count_all_stored"]))
    if kept.num_rows:
        message = (
            f"{kept.num_rows} keys, such as {kept[RECORD_KEY][0].as_py()!r}, have several rows in "
            "one file, of which the condition chooses only some, and a delete would delete all of "
            "them; choose all rows of these keys, and insert again those that are to stay"
        )
        raise Refused(message)
