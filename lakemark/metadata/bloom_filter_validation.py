"""Compares the partition ``bloom_filters`` with the filters in the footers of the base files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lakemark.metadata.bloom_filter_records import StoredFilter, has_footer, read_filter
from lakemark.metadata.difference import Difference
from lakemark.metadata.index_keys import bloom_filter_key
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.slice_rows import KEY, PAYLOAD
from lakemark.model.file_slice import BaseFile
from lakemark.storage.storage import Storage
from lakemark.view.file_lister import DataFile

_KIND = PartitionKind.BLOOM_FILTERS


def bloom_filter_differences(
    storage: Storage,
    metadata: MetadataTable,
    files: Iterable[DataFile],
    on_storage: Iterable[DataFile],
) -> Iterator[Difference]:
    """Yield the bloom filters that are wrong or missing, and those of files that do not exist.

    Args:
        storage: the data table's root.
        metadata: the metadata table.
        files: the files that the metadata table must describe.
        on_storage: all files on storage; the metadata table may describe them, too.

    Raises:
        SnapshotChanged: the table was changed in the meantime; call again.
        CorruptData: a file or the metadata table cannot be read.
    """
    required, known = _by_key(files), _by_key(on_storage)
    seen = set()
    for rows in metadata.newest(metadata.parts(_KIND.stored_name), _KIND.payload):
        for batch in rows.to_batches(max_chunksize=1):
            (row,) = batch.to_pylist()
            if row[PAYLOAD]["isDeleted"]:
                continue
            seen.add(row[KEY])
            if row[KEY] not in known:
                yield Difference(row[KEY], _KIND.stored_name, "a filter", "no such file")
            elif row[KEY] in required:
                yield from _if_different(storage, required[row[KEY]], row[PAYLOAD])
    for key in sorted(required.keys() - seen):
        if read_filter(storage, required[key]) is not None:
            yield Difference(required[key].path, _KIND.stored_name, "no filter", "a filter")


def _by_key(files: Iterable[DataFile]) -> dict[str, BaseFile]:
    """Return the Parquet base files by the key of their filter."""
    return {
        bloom_filter_key(file.partition_path, str(file.name)).decode(): file
        for file in files
        if has_footer(file)
    }


def _if_different(
    storage: Storage, base: BaseFile, stored: Mapping[str, Any]
) -> Iterator[Difference]:
    actual = read_filter(storage, base)
    if actual is None:
        yield Difference(base.path, _KIND.stored_name, "a filter", "no filter")
    elif StoredFilter(stored["type"].encode(), stored["bloomFilter"]) != actual:
        yield Difference(base.path, _KIND.stored_name, "another filter", "the filter of the file")
