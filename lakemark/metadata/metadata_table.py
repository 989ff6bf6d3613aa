"""The metadata table as its readers see it: partitions of file groups that hold keys and payloads.

A reader that loads the data table's timeline *before* it opens the metadata table sees all of a
commit or nothing of it: the metadata table's delta commit comes first and counts only once the data
table's instant has completed, and what was requested after that loading does not count yet
(``ValidInstants``).
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

#: A slice, and what to look for there.
Part: TypeAlias = tuple[FileSlice, Selection]


@dataclass(frozen=True)
class MetadataTable:
    """Reads the partitions that the data table's properties name.

    Attributes:
        partitions: those that readers may trust.
        slices: where the rows of a partition lie.
        rows: reads them.
        definitions: of its indexes, by partition.
        disagreement: why none of it may be trusted, by its timeline; None when it may.
        difference: why a partition may not be trusted, by its files; None when it may.
    """

    partitions: frozenset[str]
    slices: Slices
    rows: SliceRows
    definitions: Mapping[str, IndexDefinition] = field(default_factory=dict)
    disagreement: str | None = None
    difference: Callable[[str], str | None] = lambda _: None

    def of_kind(self, kind: PartitionKind) -> list[str]:
        """Partitions of that kind that readers may trust."""
        return sorted(p for p in self.partitions if PartitionKind.of(p) is kind)

    def trusted(self, kind: PartitionKind) -> list[str]:
        """Partitions of that kind that are all there; listed if they were not yet.

        None of them while another writer's changes are unknown to the table, or the table's to it.

        Raises:
            SnapshotChanged: others changed the metadata table meanwhile: open it again.
        """
        if self.disagreement is not None:
            return []
        return [one for one in self.of_kind(kind) if self.difference(one) is None]

    def parts(self, partition: str, selection: Selection | None = None) -> list[Part]:
        """Slices of a partition that may hold some of a selection; keys go to their own shard.

        Raises:
            SnapshotChanged: others compacted or cleaned meanwhile: open the table again.
        """
        slices = self.slices(partition)
        if isinstance(selection, Keys):
            return [*by_shard(slices, selection)]
        return [(file_slice, selection or Everything()) for file_slice in slices]

    def history(self, parts: Iterable[Part], payload: str) -> pa.Table:
        """Every row that is stored for the keys, of one key the older before the newer.

        Columns are ``key`` and ``payload``, which is null where all that came before is deleted.

        Args:
            parts: what to read.
            payload: field of the stored records that is asked for.

        Raises:
            SnapshotChanged: a file was removed by a compaction or a clean: open the table again.
            CorruptData: bytes that disagree with the format.
            Unsupported: a file or block of a kind that is not read here.
        """
        tables = [schema_of(payload).empty_table()]
        for file_slice, wanted in parts:
            tables += self.rows.of_base(file_slice, payload, wanted)
            tables.append(self.rows.of_logs(file_slice, payload, wanted))
        return pa.concat_tables(tables)

    def newest(self, parts: Iterable[Part], payload: str) -> Iterator[pa.Table]:
        """The newest row of each key, deleted ones left out; arguments and errors as ``history``.

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
    """The last row of each key."""
    codes = key_codes(rows, [KEY])
    return rows.take(pa.array(np.sort(codes.last(np.arange(rows.num_rows)))))
