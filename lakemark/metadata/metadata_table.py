"""Reads the metadata table, whose rows consist of a key and a payload.

A reader must load the data table's timeline *before* it opens the metadata table. Then the reader
sees either all of a commit or nothing of it. The reason is that a delta commit of the metadata
table is published before the data table's instant completes, and is valid only afterwards. Commits
that were requested after the data table's timeline was loaded are ignored (``ValidInstants``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.hfile.selection import Everything, Keys, Selection
from lakemark.merge.key_codes import key_codes
from lakemark.metadata.index_definition import IndexDefinition
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.shards import by_shard
from lakemark.metadata.slice_rows import KEY, PAYLOAD, SliceRows, schema_of
from lakemark.model.file_slice import FileSlice

#: Returns the newest slice of each file group of a partition.
Slices: TypeAlias = Callable[[str], Sequence[FileSlice]]

#: A slice, and the keys to look up in it.
Part: TypeAlias = tuple[FileSlice, Selection]


@dataclass(frozen=True)
class MetadataTable:
    """Reads the partitions that the data table's properties name.

    Attributes:
        partitions: names of the partitions that the properties name as complete.
        slices: returns the file slices of a partition.
        rows: reads the rows of a slice.
        definitions: definitions of the indexes, by partition.
        inconsistency: why the metadata table's timeline does not match the data table's; None if
            the timelines match.
        may_have_later_commits: whether base files may contain commits that the data table's
            timeline lacks; see ``lakemark.metadata.merged_commits``.
        find_file_mismatch: returns how the files of a partition differ from those that the commits
            recorded; None if they do not differ.
    """

    partitions: frozenset[str]
    slices: Slices
    rows: SliceRows
    definitions: Mapping[str, IndexDefinition] = field(default_factory=dict)
    inconsistency: str | None = None
    may_have_later_commits: bool = False
    find_file_mismatch: Callable[[str], str | None] = lambda _: None

    def partitions_of_kind(self, kind: PartitionKind) -> list[str]:
        """Return the partitions of a kind that the properties name as complete."""
        return sorted(p for p in self.partitions if PartitionKind.of(p) is kind)

    def usable_partitions(self, kind: PartitionKind) -> list[str]:
        """Return the partitions of a kind that may be used; this lists the partitions' files.

        The result is empty if the metadata table's timeline does not match the data table's, or if
        the partitions may describe later rows than those on the data table's timeline.

        Raises:
            SnapshotChanged: the metadata table was changed in the meantime; open it again.
        """
        if self.inconsistency is not None:
            return []
        if kind.describes_latest_rows and self.may_have_later_commits:
            return []
        return [p for p in self.partitions_of_kind(kind) if self.find_file_mismatch(p) is None]

    def parts(self, partition: str, selection: Selection | None = None) -> list[Part]:
        """Return the slices of a partition that may contain selected keys, each with those keys.

        If single keys are selected, each key is looked up only in its shard.

        Raises:
            SnapshotChanged: the metadata table was compacted or cleaned in the meantime; open it
                again.
        """
        slices = self.slices(partition)
        if isinstance(selection, Keys):
            return [*by_shard(slices, selection)]
        return [(file_slice, selection or Everything()) for file_slice in slices]

    def history(self, parts: Iterable[Part], payload: str) -> pa.Table:
        """Return all stored rows of the selected keys; the rows of one key are oldest first.

        The columns are ``key`` and ``payload``. The payload is null if the row deletes its key.

        Args:
            parts: the slices and keys to read.
            payload: the field of the stored records to read.

        Raises:
            SnapshotChanged: a file was removed by a compaction or a clean; open the table again.
            CorruptData: bytes do not match the format.
            Unsupported: lakemark does not read this kind of file or block.
        """
        tables, listed = [schema_of(payload).empty_table()], list(parts)
        with self.rows.opened(file_slice for file_slice, _ in listed) as rows:
            for file_slice, wanted in listed:
                tables += rows.of_base(file_slice, payload, wanted)
                tables.append(rows.of_logs(file_slice, payload, wanted))
        return pa.concat_tables(tables)

    def newest(self, parts: Iterable[Part], payload: str) -> Iterator[pa.Table]:
        """Yield the newest row of each key, without deleted keys.

        Arguments and errors are as for ``history``. Base files are streamed, so at most the logs of
        one file group are held in memory.
        """
        for file_slice, wanted in parts:
            changes = _newest_rows(self.rows.of_logs(file_slice, payload, wanted))
            changed = changes.column(KEY)
            for rows in self.rows.of_base(file_slice, payload, wanted):
                is_old = pc.is_in(rows.column(KEY), value_set=changed)
                yield rows.filter(pc.invert(is_old)) if len(changed) else rows
            yield changes.filter(pc.is_valid(changes.column(PAYLOAD)))


def _newest_rows(rows: pa.Table) -> pa.Table:
    """Return the last row of each key."""
    codes = key_codes(rows, [KEY])
    return rows.take(pa.array(np.sort(codes.last(np.arange(rows.num_rows)))))
