"""Lists a table's data files from the metadata table, without listing storage.

In the partition ``files``, the key ``__all_partitions__`` lists the partitions of the data table.
The path of each partition is a key that lists the partition's files. A file exists if the newest
record that names the file does not delete it. The size of a file is the largest size in all of its
records, because files grow and are never overwritten. Readers see only the files that are listed
here. Source: ``HoodieBackedTableMetadata``, ``combineFileSystemMetadata`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.hfile.selection import Keys, Selection
from lakemark.merge.key_codes import key_codes
from lakemark.metadata.index_keys import NON_PARTITIONED, partition_path_of, stored_path
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.slice_rows import KEY, PAYLOAD
from lakemark.model.file_slice import ALL_PARTITIONS
from lakemark.view.file_lister import FILE_NAMES, DataFile, data_file

_FILES = PartitionKind.FILES


@dataclass(frozen=True)
class MetadataFileLister:
    """A ``lakemark.view.file_lister.FileLister`` that reads the partition ``files``."""

    metadata: MetadataTable

    def list_files(self) -> dict[str, list[DataFile]]:
        """List the data files of each partition, by partition path ("" is the root).

        A partition may have no files.

        Raises:
            SnapshotChanged: the metadata table was compacted in the meantime; open it again.
            CorruptData: bytes of the metadata table do not match the format, or a file has a
                negative size.
        """
        listed = self._read(None)
        partitions = sorted(partition_path_of(name) for name, _ in listed.pop(ALL_PARTITIONS, ()))
        return {path: _data_files(path, listed.get(stored_path(path), ())) for path in partitions}

    def list_partitions(self) -> list[str]:
        """List the paths of the partitions, sorted; errors as for ``list_files``."""
        listed = self._read([ALL_PARTITIONS])
        return sorted(partition_path_of(name) for name, _ in listed.get(ALL_PARTITIONS, ()))

    def list_some(self, partition_paths: Iterable[str]) -> dict[str, list[DataFile]]:
        """List the data files of these partitions; a partition that does not exist has none.

        Errors as for ``list_files``.
        """
        names = {path: stored_path(path) for path in partition_paths}
        listed = self._read(list(names.values()))
        return {path: _data_files(path, listed.get(name, ())) for path, name in names.items()}

    def list_names(self, partition_paths: Iterable[str]) -> pa.Table:
        """See ``lakemark.view.file_lister.PartitionLister``. Errors as for ``list_files``."""
        names = pa.array([stored_path(path) for path in partition_paths], pa.string())
        entries = self._entries(Keys.of_any(names))
        keys = entries.column(KEY)
        paths = pc.if_else(pc.equal(keys, NON_PARTITIONED), "", keys)
        return pa.table([paths, *entries.columns[1:]], schema=FILE_NAMES)

    def records(self) -> dict[str, dict[str, int]]:
        """Return the stored names and sizes of the files under each key.

        Under the key ``ALL_PARTITIONS``, the names are those of partitions.
        """
        return {key: dict(entries) for key, entries in self._read(None).items()}

    def _read(self, keys: Sequence[str] | None) -> dict[str, list[tuple[str, int]]]:
        """Return the names and sizes under each of ``keys``; under all keys if it is None."""
        entries = self._entries(None if keys is None else Keys.of_any(pa.array(keys, pa.string())))
        listed: dict[str, list[tuple[str, int]]] = {}
        for key, name, size_bytes in zip(*entries.to_pydict().values(), strict=True):
            listed.setdefault(key, []).append((name, size_bytes))
        return listed

    def _entries(self, selection: Selection | None) -> pa.Table:
        """Return key, name and size of each entry under the selected keys."""
        parts = self.metadata.parts(_FILES.stored_name, selection)
        return _live_entries(self.metadata.history(parts, _FILES.payload))


def _live_entries(rows: pa.Table) -> pa.Table:
    """Return key, name and size of each entry that is not deleted, in the order of creation."""
    entries = _entries_since_delete(rows)
    codes = key_codes(entries, [KEY, "name"])
    deleted = np.asarray(entries.column("is_deleted"))
    last = codes.last(np.arange(entries.num_rows))
    sizes = np.zeros(codes.key_count, np.int64)
    live = np.flatnonzero(~deleted)
    np.maximum.at(sizes, codes.codes[live], np.asarray(entries.column("size_bytes"))[live])
    is_live = ~deleted[last]
    found = entries.select([KEY, "name"]).take(pa.array(last[is_live]))
    return found.append_column("size_bytes", pa.array(sizes[is_live]))


def _entries_since_delete(rows: pa.Table) -> pa.Table:
    """Return the entries of all records that are newer than the last deletion of their key."""
    codes = key_codes(rows, [KEY])
    payload = rows.column(PAYLOAD).combine_chunks()
    deletes = codes.last(np.flatnonzero(np.asarray(payload.is_null())))
    counts = np.diff(payload.offsets) if len(payload) else np.empty(0, np.int64)
    row_of = np.repeat(np.arange(rows.num_rows), counts)
    entries = payload.flatten()
    table = pa.Table.from_arrays(
        [rows.column(KEY).take(pa.array(row_of)), *entries.flatten()],
        [KEY, *(field.name for field in entries.type)],
    )
    return table.filter(pa.array(row_of > deletes[codes.codes[row_of]]))


def _data_files(partition_path: str, listed: Iterable[tuple[str, int]]) -> list[DataFile]:
    files = (data_file(partition_path, name, size_bytes) for name, size_bytes in listed)
    return [file for file in files if file is not None]
