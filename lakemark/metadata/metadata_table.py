"""Reads the metadata table: partitions of file groups, whose rows are keys and payloads.

A reader must load the data table's timeline *before* it opens the metadata table. Then it sees all
of a commit or nothing of it. The delta commit of the metadata table is published first, and is
valid only once the data table's instant has completed. Commits that were requested after the
timeline was loaded are ignored (``ValidInstants``).
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

#: The newest slice of each file group of a partition.
Slices: TypeAlias = Callable[[str], Sequence[FileSlice]]

#: A slice, and the keys to look up in it.
Part: TypeAlias = tuple[FileSlice, Selection]


@dataclass(frozen=True)
class MetadataTable:
    """Reads the partitions that the data table's properties name.

    Attributes:
        partitions: those that the properties name as complete.
        slices: the file slices of a partition.
        rows: reads the rows of a slice.
        definitions: of its indexes, by partition.
        inconsistency: why its timeline does not match the data table's; None if it does.
        find_file_mismatch: takes a partition, and says how its files differ from those that the
            commits recorded; None if they do not.
    """

    partitions: frozenset[str]
    slices: Slices
    rows: SliceRows
    definitions: Mapping[str, IndexDefinition] = field(default_factory=dict)
    inconsistency: str | None = None
    find_file_mismatch: Callable[[str], str | None] = lambda _: None

    def partitions_of_kind(self, kind: PartitionKind) -> list[str]:
        """Return the partitions of that kind that the properties name as complete."""
        return sorted(p for p in self.partitions if PartitionKind.of(p) is kind)

    def usable_partitions(self, kind: PartitionKind) -> list[str]:
        """Return the partitions of that kind that may be used; lists their files.

        There are none if the metadata table's timeline does not match the data table's.

        Raises:
            SnapshotChanged: the metadata table was changed in the meantime: open it again.
        """
        if self.inconsistency is not None:
            return []
        return [p for p in self.partitions_of_kind(kind) if self.find_file_mismatch(p) is None]

    def parts(self, partition: str, selection: Selection | None = None) -> list[Part]:
        """Slices of a partition that may contain a selection; each key is sought in its own shard.

        Raises:
            SnapshotChanged: the metadata table was compacted or cleaned in the meantime: open it
                again.
        """
        slices = self.slices(partition)
        if isinstance(selection, Keys):
            return [*by_shard(slices, selection)]
        return [(file_slice, selection or Everything()) for file_slice in slices]

    def history(self, parts: Iterable[Part], payload: str) -> pa.Table:
        """Return all stored rows of the keys; those of one key oldest first.

        Columns are ``key`` and ``payload``. The payload is null if the row deletes its key.

        Args:
            parts: what to read.
            payload: the field of the stored records to read.

        Raises:
            SnapshotChanged: a file was removed by a compaction or a clean: open the table again.
            CorruptData: bytes do not match the format.
            Unsupported: a file or block is of a kind that is not read here.
        """
        tables = [schema_of(payload).empty_table()]
        for file_slice, wanted in parts:
            tables += self.rows.of_base(file_slice, payload, wanted)
            tables.append(self.rows.of_logs(file_slice, payload, wanted))
        return pa.concat_tables(tables)

    def newest(self, parts: Iterable[Part], payload: str) -> Iterator[pa.Table]:
        """The newest row of each key, without deleted ones; arguments and errors as ``history``.

        Base files are streamed, so memory is bounded by the logs of a file group.
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
