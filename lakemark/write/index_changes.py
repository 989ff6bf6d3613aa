"""Collects, while a file is written, what it changes in the indexes of the metadata table.

The record index needs the keys that the file adds to its file group or removes from it. A secondary
index needs the values that the rows of these keys had before and have after the commit. A worker
that rewrites a base file has all of these rows anyway. A worker that appends a log reads the rows
of the log's keys, with only the columns that the merge and the index need.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.index.key_search import SearchedGroup, merge_both_states
from lakemark.metadata.secondary_columns import SecondaryColumn
from lakemark.metadata.secondary_index_records import index_keys
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_slice import LogFile
from lakemark.model.key_changes import KeyChanges
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.write.write_context import WriteContext


@dataclass(frozen=True, slots=True)
class IndexedRows:
    """The keys of rows, in any order, for each index that needs them.

    Attributes:
        collects_keys: whether the table has a record index.
        columns: the columns with a secondary index.
    """

    collects_keys: bool = True
    columns: Sequence[SecondaryColumn] = ()
    _record_keys: list[pa.Array] = field(default_factory=list, init=False, repr=False)
    _index_keys: dict[SecondaryColumn, list[pa.Array]] = field(
        default_factory=dict, init=False, repr=False
    )

    @classmethod
    def of(cls, context: WriteContext) -> IndexedRows:
        """Return an empty collection for the indexes of a table."""
        return cls(context.has_record_index, context.secondary_columns)

    def add(self, rows: pa.Table) -> None:
        """Add rows, which have their record keys and the indexed columns."""
        if self.collects_keys:
            self._record_keys.extend(rows.column(RECORD_KEY).chunks)
        for column in self.columns:
            self._index_keys.setdefault(column, []).append(index_keys(rows, column))

    def each_of(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the tables, whose rows are added."""
        for rows in tables:
            self.add(rows)
            yield rows

    def record_keys(self) -> pa.Array:
        """Return the distinct record keys."""
        return _distinct(self._record_keys)

    def describe_changes(self, stat: WriteStat, before: IndexedRows) -> WriteStat:
        """Return the write stat of a file, with what it changes in the indexes.

        Args:
            stat: the write stat.
            before: the rows of the file group before the commit; these are the rows after it.
        """
        if not self.collects_keys:
            return stat
        changes = KeyChanges.between(before.record_keys(), self.record_keys())
        return replace(stat, key_changes=changes, secondary_changes=self.value_changes(before))

    def index_keys(self, column: SecondaryColumn) -> pa.Array:
        """Return the distinct keys of the rows in a secondary index."""
        return _distinct(self._index_keys.get(column, []))

    def value_changes(self, before: IndexedRows) -> Mapping[Hashable, KeyChanges]:
        """Return, for each secondary index, the keys of the index that the commit changes."""
        return {
            column: KeyChanges.between(before.index_keys(column), self.index_keys(column))
            for column in self.columns
        }


def value_changes_of_logs(
    context: WriteContext, before: SearchedGroup, logs: Sequence[LogFile], record_keys: pa.Array
) -> Mapping[Hashable, KeyChanges]:
    """Return, for each secondary index, the keys of the index that new logs change.

    A change may lose to a stored row, or contain only some columns. So the rows before and after
    the logs are those that queries read. While a compaction is pending, they are also those that
    queries will read after it, because a compaction changes no index.

    Args:
        context: the commit.
        before: the file group before the commit.
        logs: the logs, which are written and have not been committed yet.
        record_keys: the distinct keys of the changes in the logs.
    """
    indexed = context.secondary_columns
    if not indexed:
        return {}
    columns = [RECORD_KEY, *(column.name for column in indexed)]
    reader = replace(
        context.reader,
        is_visible=lambda instant: instant == context.instant or context.is_visible(instant),
    )
    old, new = (IndexedRows(collects_keys=False, columns=indexed) for _ in range(2))
    for found, group in ((old, before), (new, before.with_logs(logs))):
        for rows in chain.from_iterable(merge_both_states(reader, group, record_keys, columns)):
            found.add(rows)
    return new.value_changes(old)


def _distinct(chunks: Sequence[pa.Array]) -> pa.Array:
    return pc.unique(pa.chunked_array(chunks, pa.string()))
