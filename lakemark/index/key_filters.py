"""Skips the file groups of queries by key, by the key ranges and Bloom filters of base files.

Both are in the footers of base files, and perhaps in the metadata table (``stored_filters``), which
is read first. A filter finds each key that was added to it, and few others. So a file without any
of the keys is skipped for certain.

A slice with logs is never skipped. A log may contain new keys: a bucket index writes them to logs,
and so do the indexes of Flink and HBase. Deletes and updates have keys of the base file, but a
reader cannot see who wrote a log.

Source: ``HoodieKeyLookupHandle`` of Apache Hudi 1.2.0, which uses the filters for writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import Unsupported
from lakemark.index.key_search import exclude_absent_keys
from lakemark.index.stored_filters import OpenMetadata, StoredFilters
from lakemark.model.file_slice import BaseFile, FileSlice
from lakemark.read.demanded_keys import MAX_KEYS
from lakemark.storage.parallel_requests import request_all
from lakemark.storage.storage import Storage

#: Fewest files that are searched. The query opens a single file anyway.
_MIN_FILES = 2

#: Largest number of footers that are read before a query begins. The query reads the footer of each
#: file that is not skipped once more.
MAX_FOOTERS = 64

#: Largest number of filters that are read from the metadata table. Apache Hudi stores 430 KB for
#: each file, and they are read one after another.
MAX_FILTERS = 1_000


@dataclass(frozen=True, slots=True)
class KeyFilters:
    """Selects file slices by the filters of their base files; implements ``KeySearch``.

    Attributes:
        storage: the root of a table that stores record keys in its files.
        filters: the key ranges and Bloom filters in the metadata table.
    """

    storage: Storage
    filters: StoredFilters

    @classmethod
    def of(cls, storage: Storage, open_metadata: OpenMetadata) -> KeyFilters:
        """Return the filters of a query, which has opened the metadata table to list the files."""
        return cls(storage, StoredFilters(open_metadata, _MIN_FILES, MAX_FILTERS))

    def select(self, slices: Sequence[FileSlice], record_keys: pa.Array) -> Sequence[FileSlice]:
        """See ``KeySearch.select``. A single file is not searched, because the query opens it."""
        files = [one.base for one in slices if one.base is not None and _has_filter(one)]
        if (
            len(files) < _MIN_FILES
            or len(record_keys) > MAX_KEYS
            or pc.any(pc.equal(record_keys, "")).as_py()
        ):
            return slices
        absent = self._files_without(files, record_keys)
        return [one for one in slices if one.base not in absent]

    def _files_without(self, files: Sequence[BaseFile], keys: pa.Array) -> set[BaseFile]:
        """Return the files that certainly have none of the keys."""
        try:
            wanted = dict(zip(files, self.filters.narrow(files, keys), strict=True))
            found = {file: len(one.keys) > 0 for file, one in wanted.items()}
            left = [file for file in files if found[file] and not wanted[file].is_filtered]
            found |= self._search_footers({file: wanted[file].keys for file in left})
        except Unsupported:  # a filter of an unknown type, which may have any key
            return set()
        return {file for file, may_contain in found.items() if not may_contain}

    def _search_footers(self, wanted: Mapping[BaseFile, pa.Array]) -> dict[BaseFile, bool]:
        """Return for each file whether it may have one of its keys; nothing for too many files."""
        if len(wanted) > MAX_FOOTERS:
            return {}

        def search(base: BaseFile) -> bool:
            return len(exclude_absent_keys(self.storage, base, wanted[base])) > 0

        files = [*wanted]
        return dict(zip(files, request_all(self.storage, search, files), strict=True))


def _has_filter(file_slice: FileSlice) -> bool:
    """Return whether a filter decides about all rows of a slice, if its base file has one."""
    base = file_slice.base
    return not file_slice.logs and base is not None and base.name.extension == "parquet"
