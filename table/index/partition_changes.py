"""Rows of a batch whose key already exists in another partition.

A record key is unique within its partition only. Such a row does not replace the row in the other
partition: the key then has two. Apache Hudi moves the row with a global index
(``hoodie.bloom.index.update.partition.path``); here the row is found, so that it can be counted or
refused.

The bucket index puts a key into the same bucket of every partition. So the file groups of one
bucket decide about the keys of that bucket.

What exists after the batch: of each key and partition the last change that arrived counts, and of
those that the batch does not change what the table holds. A row is a partition change if its
partition does not hold the key yet and another one holds it. If the key is new in several
partitions of the batch, all of these rows but the first to arrive are partition changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from table.index.key_search import live_keys
from table.merge.key_codes import key_codes
from table.merge.spill import divided_by_key
from table.model.changes import CHANGE_KIND, ChangeKind
from table.model.file_slice import FileSlice
from table.model.meta_columns import PARTITION_PATH, RECORD_KEY
from table.read.file_group_reader import FileGroupReader

#: The columns of changes that decide.
DECIDING_COLUMNS = (RECORD_KEY, PARTITION_PATH, CHANGE_KIND)

#: Another partition that holds the key.
OTHER_PARTITION = "other_partition"

SCHEMA = pa.schema([(name, pa.string()) for name in (RECORD_KEY, PARTITION_PATH, OTHER_PARTITION)])

#: Memory for the keys of one bucket's changes; more of them go to disk.
DEFAULT_MEMORY_BUDGET_BYTES = 64 << 20

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The keys and partitions of a batch, each pair once, in order of its first arrival.

    Attributes:
        keys: record keys.
        partitions: partition paths.
        is_live: whether the last change of the pair is an upsert.
    """

    keys: pa.Array
    partitions: pa.Array
    is_live: _Mask

    @classmethod
    def of(cls, changes: pa.Table) -> _Pairs:
        codes = key_codes(changes, (RECORD_KEY, PARTITION_PATH))
        every = np.arange(changes.num_rows)
        first, last = codes.first(every), codes.last(every)
        order = np.argsort(first)
        kinds = changes.column(CHANGE_KIND).to_numpy()
        pairs = changes.take(pa.array(first[order])).combine_chunks()
        keys, partitions = (
            pairs.column(n).combine_chunks().cast(pa.string()) for n in (RECORD_KEY, PARTITION_PATH)
        )
        return cls(keys, partitions, kinds[last[order]] == ChangeKind.UPSERT)


def find_partition_changes(
    reader: FileGroupReader,
    slices: Sequence[FileSlice],
    changes: Iterable[pa.Table],
    memory_budget_bytes: int = DEFAULT_MEMORY_BUDGET_BYTES,
) -> pa.Table:
    """The rows that change their partition, each once, in ``SCHEMA``.

    Args:
        reader: of the table before the batch.
        slices: what queries read of one bucket, in all partitions.
        changes: all changes of that bucket in order of arrival; the ``DECIDING_COLUMNS``.
        memory_budget_bytes: how much of the changes is held before they go to disk.

    Raises:
        SnapshotChanged: a file of a slice is gone.
        CorruptData, Unsupported: a file cannot be read.
    """
    found = [
        _find(reader, slices, _Pairs.of(some))
        for some in divided_by_key(changes, memory_budget_bytes)
    ]
    return pa.concat_tables([SCHEMA.empty_table(), *found])


def _find(reader: FileGroupReader, slices: Sequence[FileSlice], pairs: _Pairs) -> pa.Table:
    live = pc.filter(pairs.keys, pa.array(pairs.is_live))
    live_partitions = pc.filter(pairs.partitions, pa.array(pairs.is_live))
    stored = [_elsewhere(reader, one, live, live_partitions) for one in slices]
    survivors = [
        _without(found, _of_partition(pairs.keys, pairs.partitions, ~pairs.is_live, path))
        for found, path in zip(stored, _paths(slices), strict=True)
    ]
    counts = pc.value_counts(live)
    several = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    suspects = _union([*survivors, several])
    if not len(suspects):
        return SCHEMA.empty_table()
    return _decide(reader, slices, pairs, suspects)


def _elsewhere(
    reader: FileGroupReader, one: FileSlice, keys: pa.Array, partitions: pa.Array
) -> pa.Array:
    """Keys that are live in the slice and that the batch upserts in another partition."""
    is_other = pc.not_equal(partitions, one.group.partition_path)
    return live_keys(reader, one, pc.unique(keys.filter(is_other)))


def _decide(
    reader: FileGroupReader, slices: Sequence[FileSlice], pairs: _Pairs, suspects: pa.Array
) -> pa.Table:
    """The changes among the suspects, which are few: key by key."""
    held: dict[str, list[str]] = {key: [] for key in suspects.to_pylist()}
    for one in slices:
        for key in live_keys(reader, one, suspects).to_pylist():
            held[key].append(one.group.partition_path)
    sent: dict[str, dict[str, bool]] = {key: {} for key in held}
    is_suspect = pc.is_in(pairs.keys, value_set=suspects)
    changed = zip(
        pairs.keys.filter(is_suspect).to_pylist(),
        pairs.partitions.filter(is_suspect).to_pylist(),
        pairs.is_live[np.asarray(is_suspect)].tolist(),
        strict=True,
    )
    for key, partition, is_live in changed:
        sent[key][partition] = is_live
    rows = [(key, *change) for key in held for change in _changes_of(held[key], sent[key])]
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    return pa.table([pa.array(column, pa.string()) for column in columns], schema=SCHEMA)


def _changes_of(held: Sequence[str], sent: dict[str, bool]) -> list[tuple[str, str]]:
    """Partitions that one key is new in, each with another one that has it.

    Args:
        held: partitions that hold the key before the batch.
        sent: partitions of the batch in order of arrival; False for those that it deletes the key
            from.
    """
    new = [partition for partition, is_live in sent.items() if is_live and partition not in held]
    kept = [partition for partition in held if sent.get(partition, True)]
    if kept:
        return [(partition, kept[0]) for partition in new]
    return [(partition, new[0]) for partition in new[1:]]


def _paths(slices: Iterable[FileSlice]) -> list[str]:
    return [one.group.partition_path for one in slices]


def _of_partition(keys: pa.Array, partitions: pa.Array, mask: _Mask, path: str) -> pa.Array:
    return keys.filter(pc.and_(pa.array(mask), pc.equal(partitions, path)))


def _without(keys: pa.Array, others: pa.Array) -> pa.Array:
    return keys.filter(pc.invert(pc.is_in(keys, value_set=others)))


def _union(parts: Iterable[pa.Array]) -> pa.Array:
    return pc.unique(pa.chunked_array(list(parts), pa.string()))
