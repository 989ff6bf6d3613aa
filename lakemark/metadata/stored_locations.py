"""Finds the location of each record key from the rows that queries read.

A new record index is built from these locations, and an existing one is compared with them. Source:
``readRecordKeysFromFileSliceSnapshot`` of ``HoodieTableMetadataUtil`` and
``HoodieMetadataTableValidator.validateRecordIndex`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.metadata.difference import Difference
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_index import LOCATIONS, RecordIndex
from lakemark.model.file_slice import FileSlice, join

#: Returns the distinct record keys of the live rows of a file slice, as strings.
ReadKeys: TypeAlias = Callable[[FileSlice], pa.Array]

_NAME = PartitionKind.RECORD_INDEX.stored_name


def no_keys(file_slice: FileSlice) -> pa.Array:
    """Return no key; for a table that has no rows, or no record index."""
    return pa.array([], pa.string())


def record_index_differences(
    index: RecordIndex, slices: Sequence[FileSlice], read_keys: ReadKeys
) -> Iterator[Difference]:
    """Yield the file groups whose keys have another location in the index, or none.

    Also yield the file groups in which the index locates keys that have no row there, and the file
    groups of the index with keys that no lookup searches there. Each difference counts keys and
    names one.

    Args:
        index: the record index; its locations are held in memory.
        slices: the slices that queries read.
        read_keys: reads the keys of a slice.

    Raises:
        SnapshotChanged: the table was changed in the meantime; call again.
        CorruptData, Unsupported: a file cannot be read.
    """
    located = [LOCATIONS.empty_table()]
    for shard, rows, are_found in index.scan_shards():
        located.append(rows.filter(are_found))
        hidden = rows.filter(pc.invert(are_found))["record_key"].combine_chunks()
        path = str(shard.group)
        yield from _if_any(path, hidden, hidden.slice(0, 0), "a location", "another file group")
    of_group = dict(_by_group(pa.concat_tables(located)))
    for one in slices:
        stored = read_keys(one)
        place = (one.group.partition_path, one.group.file_id)
        indexed = of_group.pop(place, stored.slice(0, 0))
        path = join(*place)
        yield from _if_any(path, stored, indexed, "no location", "a row")
        yield from _if_any(path, indexed, stored, "a location", "no row")
    for place, indexed in of_group.items():
        yield from _if_any(join(*place), indexed, indexed.slice(0, 0), "a location", "no row")


def _by_group(located: pa.Table) -> Iterator[tuple[tuple[str, str], pa.Array]]:
    grouped = located.group_by(["partition_path", "file_id"]).aggregate([("record_key", "list")])
    columns = (grouped.column(name) for name in ("partition_path", "file_id", "record_key_list"))
    for path, file_id, keys in zip(*columns, strict=True):
        yield (path.as_py(), file_id.as_py()), keys.values


def _if_any(
    path: str, keys: pa.Array, others: pa.Array, stored: str, actual: str
) -> Iterator[Difference]:
    """Yield a difference if some keys are not among the others."""
    extra = keys.filter(pc.invert(pc.is_in(keys, value_set=others)))
    if len(extra):
        of = f"of {len(extra)} keys, such as {pc.min(extra).as_py()!r}"
        yield Difference(path, _NAME, f"{stored} {of}", actual)
