"""Finds partition changes: keys that a batch would add although another partition has them.

A record key is unique only within its partition. A new row in one partition does not replace a row
with the same key in another partition, so the key then has two rows. Apache Hudi moves the row if
it has a global index (``hoodie.bloom.index.update.partition.path``). lakemark instead finds such
rows, and counts or rejects them.

The decision depends on the live rows before and after the batch, not on the changes in the batch.
An upsert may lose to a newer row or to an earlier delete, and a delete may lose too. So the changes
of the keys in question are merged with the table's rows by the table's merger, as readers do. For
each key there are three sets of partitions:

before     partitions that have the key before the batch
remaining  partitions in ``before`` that still have the key after the batch
new        partitions that have the key after the batch and did not have it before

The batch is one commit. So a delete frees its key for another partition, wherever the delete is in
the batch. If ``remaining`` is empty, the first partition in ``new`` becomes the partition of the
key. All other partitions in ``new`` are partition changes. Partitions are independent of each
other: if the changes of a partition change are not written, all other rows stay the same.

The bucket index uses the same bucket for a key in every partition. So the file groups of one bucket
suffice to decide about all keys of that bucket.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.merge_settings import MergeSettings
from lakemark.config.table_properties import MergeMode
from lakemark.index.key_search import SearchedGroup, find_keys_live_after, find_live_keys
from lakemark.merge.key_codes import NO_ROW, key_codes
from lakemark.merge.spill import divide_by_key
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.schema.field_path import top_column

#: Name of the result column for another partition that has the key.
OTHER_PARTITION = "other_partition"

#: Name of the result column that flags the rows to count. If a key is in more partitions than
#: before, exactly one of its rows is flagged.
IS_COUNTED = "is_counted"

#: Name of the result column that flags rows for which the deletes of the batch would create a live
#: row even without the upserts. Only a custom merger can create a row from a delete.
DELETES_ADD = "deletes_add"

SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in (RECORD_KEY, PARTITION_PATH, OTHER_PARTITION)),
        (IS_COUNTED, pa.bool_()),
        (DELETES_ADD, pa.bool_()),
    ]
)

#: Memory for the changes of one bucket that are examined; further changes are written to disk.
DEFAULT_MEMORY_BUDGET_BYTES = 64 << 20

_Mask = npt.NDArray[np.bool_]

#: The partitions of each key, in the order in which they were found.
_Partitions = Mapping[str, Sequence[str]]


def deciding_columns(columns: pa.Schema, settings: MergeSettings) -> list[str]:
    """Return the columns of changes that the search needs: keys, kinds, and ordering columns.

    With a custom merger these are all columns, because it may use any column.

    Args:
        columns: columns of the changes.
        settings: merge settings of the table.
    """
    if settings.mode is MergeMode.CUSTOM:
        return list(columns.names)
    ordering = {top_column(name, columns) for name in settings.ordering_fields}
    deciding = {RECORD_KEY, PARTITION_PATH, CHANGE_KIND, *ordering}
    return [name for name in columns.names if name in deciding]


def find_partition_changes(
    reader: FileGroupReader,
    groups: Sequence[SearchedGroup],
    changes: Iterable[pa.Table],
    memory_budget_bytes: int = DEFAULT_MEMORY_BUDGET_BYTES,
    *,
    appends: bool,
) -> pa.Table:
    """Find the partition changes of a batch, as distinct pairs of key and partition.

    Args:
        reader: reader of the table before the batch.
        groups: the file groups of one bucket, in all partitions.
        changes: all changes of that bucket in order of arrival, with the ``deciding_columns``.
        memory_budget_bytes: number of bytes of changes in memory; further changes are written to
            disk.
        appends: whether changes are appended to log files, as in a merge-on-read table.

    Returns:
        A table with the columns of ``SCHEMA``.

    Raises:
        SnapshotChanged: a file of a group was deleted.
        CorruptData: a file is damaged.
        Unsupported: a file or a block has a kind that lakemark does not read.
    """
    search = _Search(reader, groups, appends)
    found = [search.find(some) for some in divide_by_key(changes, memory_budget_bytes)]
    return pa.concat_tables([SCHEMA.empty_table(), *found])


@dataclass(frozen=True, slots=True)
class _KeyPartitions:
    """The distinct pairs of key and partition for which a batch may add a row.

    The pairs are in the order in which their first upserts arrived.

    Attributes:
        keys: the record key of each pair.
        partitions: the partition path of each pair.
    """

    keys: pa.Array
    partitions: pa.Array

    @classmethod
    def of(cls, changes: pa.Table, *, deletes_may_add: bool) -> _KeyPartitions:
        codes = key_codes(changes, (RECORD_KEY, PARTITION_PATH))
        kinds = changes.column(CHANGE_KIND).to_numpy()
        first = codes.first(np.flatnonzero(deletes_may_add | (kinds == ChangeKind.UPSERT)))
        pairs = changes.take(pa.array(np.sort(first[first != NO_ROW]))).combine_chunks()
        return cls(*(_to_strings(pairs, name) for name in (RECORD_KEY, PARTITION_PATH)))

    def keys_outside(self, partition: str) -> pa.Array:
        """Return the distinct keys for which the batch may add a row in another partition."""
        return pc.unique(self.keys.filter(pc.not_equal(self.partitions, partition)))

    def keys_of_several(self) -> pa.Array:
        """Return the keys for which the batch may add rows in several partitions."""
        counts = pc.value_counts(self.keys)
        return counts.field("values").filter(pc.greater(counts.field("counts"), 1))


@dataclass(frozen=True, slots=True)
class _Search:
    """Searches the file groups of one bucket for partition changes."""

    reader: FileGroupReader
    groups: Sequence[SearchedGroup]
    appends: bool

    def find(self, changes: pa.Table) -> pa.Table:
        """Find the partition changes of some keys.

        Args:
            changes: all changes of these keys.
        """
        deletes_may_add = self.reader.merger.needs_whole_rows
        pairs = _KeyPartitions.of(changes, deletes_may_add=deletes_may_add)
        elsewhere = (
            find_live_keys(self.reader, group, pairs.keys_outside(group.partition_path))
            for group in self.groups
        )
        suspects = _union([*elsewhere, pairs.keys_of_several()])
        if not len(suspects):
            return SCHEMA.empty_table()
        before = _by_key(
            (group.partition_path, find_live_keys(self.reader, group, suspects))
            for group in self.groups
        )
        changed = changes.filter(pc.is_in(changes.column(RECORD_KEY), value_set=suspects))
        rows = list(_partition_changes(before, self._live_after(changed), changed, pairs))
        if rows and deletes_may_add:
            rows = self._with_deletes(rows, changed)
        columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
        arrays = [pa.array(c, field.type) for c, field in zip(columns, SCHEMA, strict=True)]
        return pa.table(arrays, schema=SCHEMA)

    def _live_after(self, changes: pa.Table) -> _Partitions:
        """Return the partitions that contain each key after the changes were applied.

        Only partitions that the changes name are examined.
        """
        groups = {group.partition_path: group for group in self.groups}
        paths = changes.column(PARTITION_PATH)
        live: list[tuple[str, pa.Array]] = []
        for path in pc.unique(paths).to_pylist():
            folded = self.reader.merger.fold(changes.filter(pc.equal(paths, path)))
            group = groups.get(path)
            if self.appends and group is not None:
                folded = _as_logged(folded)
            live.append((path, find_keys_live_after(self.reader, group, folded)))
        return _by_key(live)

    def _with_deletes(self, rows: list[_Found], changed: pa.Table) -> list[_Found]:
        """Return the rows with ``DELETES_ADD`` set if the deletes alone would add a row."""
        is_delete = pc.not_equal(changed.column(CHANGE_KIND), int(ChangeKind.UPSERT))
        live = self._live_after(changed.filter(is_delete))
        return [(*row[:-1], row[1] in live.get(row[0], ())) for row in rows]


#: A row of ``SCHEMA``.
_Found = tuple[str, str, str, bool, bool]


def _partition_changes(
    before: _Partitions, after: _Partitions, changed: pa.Table, pairs: _KeyPartitions
) -> Iterator[_Found]:
    """Yield the partition changes.

    Only a few keys are examined, so a loop over the keys is fast enough.

    Args:
        before: for each key, the partitions that have the key before the batch.
        after: for each key, the partitions in the batch that have the key afterwards.
        changed: the changes of these keys.
        pairs: the keys and partitions for which the batch may add a row.
    """
    touched = set(zip(*(_to_strings(changed, n).to_pylist() for n in _PAIR), strict=True))
    arrived: dict[str, list[str]] = defaultdict(list)
    for key, path in zip(pairs.keys.to_pylist(), pairs.partitions.to_pylist(), strict=True):
        if path in after.get(key, ()):
            arrived[key].append(path)
    for key, live in arrived.items():
        held = before.get(key, ())
        remaining = [path for path in held if (key, path) not in touched or path in after[key]]
        new = [path for path in live if path not in held]
        is_more = len(remaining) + len(new) > max(len(held), 1)
        for number, path in enumerate(new if remaining else new[1:]):
            yield key, path, (remaining or new)[0], is_more and number == 0, False


_PAIR = (RECORD_KEY, PARTITION_PATH)


def _as_logged(folded: pa.Table) -> pa.Table:
    """Return changes as they are read from a log.

    Rows that a delete marker flags become deletes, because they are written to delete blocks.
    """
    kinds = folded.column(CHANGE_KIND).to_numpy()
    stored = np.where(kinds == ChangeKind.FLAGGED_DELETE, np.int8(ChangeKind.DELETE), kinds)
    position = folded.schema.get_field_index(CHANGE_KIND)
    return folded.set_column(position, folded.schema.field(position), pa.array(stored))


def _by_key(live: Iterable[tuple[str, pa.Array]]) -> _Partitions:
    found: dict[str, list[str]] = defaultdict(list)
    for path, keys in live:
        for key in keys.to_pylist():
            found[key].append(path)
    return found


def _to_strings(rows: pa.Table, name: str) -> pa.Array:
    return rows.column(name).combine_chunks().cast(pa.string())


def _union(parts: Iterable[pa.Array]) -> pa.Array:
    return pc.unique(pa.chunked_array(list(parts), pa.string()))
