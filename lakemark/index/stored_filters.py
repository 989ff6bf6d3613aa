"""Excludes base files from a search of record keys, by what the metadata table has about the files.

Each base file has a key range and a Bloom filter in its footer. The metadata table may have both,
too: the range in the partition ``column_stats``, and the filter in ``bloom_filters``. The ranges of
all files of a partition are next to each other in one block, so they are read first. Filters are
read only for the files that the ranges do not exclude, and only if there are more of these files
than keys. A key is mostly in one file of a partition. So with many keys, most of the files must be
opened anyway, and their footers have the same filters. A file that the metadata table lacks, for
example because Apache Hudi wrote it without these indexes, is left to its footer. So is a file
whose range leaves out some of its keys.

A range or a filter belongs to the name of a file, whose content never changes. So it does not
matter if the metadata table has later commits than the search.

Source: ``HoodieBloomIndex`` with ``hoodie.bloom.index.use.metadata``, Apache Hudi 1.2.0.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.metadata.bloom_filters import BloomFilters
from lakemark.metadata.column_stats.lookup import ColumnStatistics
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.file_slice import BaseFile
from lakemark.model.meta_columns import RECORD_KEY

#: Opens the metadata table if it has a partition that is complete and may be used.
OpenMetadata: TypeAlias = Callable[[PartitionKind], MetadataTable | None]


class Wanted(NamedTuple):
    """The keys that a base file may contain.

    Attributes:
        keys: distinct keys.
        is_filtered: whether a Bloom filter has excluded all keys that it can; if not, the footer
            may exclude more.
    """

    keys: pa.Array
    is_filtered: bool = False


@dataclass(frozen=True, slots=True)
class StoredFilters:
    """Key ranges and Bloom filters in the metadata table.

    Attributes:
        open_metadata: opens the metadata table.
        min_files: the fewest files for which the metadata table is opened.
        max_filters: the most filters that are read from it.
    """

    open_metadata: OpenMetadata
    min_files: int
    max_filters: int

    def narrow(self, files: Sequence[BaseFile], keys: pa.Array) -> list[Wanted]:
        """Return for each file the keys that it may contain.

        Args:
            files: base files of a table that stores record keys in its files.
            keys: distinct strings, not null and not empty.

        Raises:
            SnapshotChanged: the metadata table was changed meanwhile.
            CorruptData: it is damaged.
            Unsupported: a filter has an unknown type.
        """
        if len(files) < self.min_files or not len(keys):
            return [Wanted(keys)] * len(files)
        within = self._within_ranges(files, keys)
        wanted = {one: Wanted(some) for one, some in zip(files, within, strict=True)}
        left = [one for one in files if len(wanted[one].keys)]
        if len(left) >= self.min_files and len(left) > len(keys):
            wanted |= self._filtered({one: wanted[one].keys for one in left})
        return [wanted[one] for one in files]

    def _within_ranges(self, files: Sequence[BaseFile], keys: pa.Array) -> list[pa.Array]:
        metadata = self.open_metadata(PartitionKind.COLUMN_STATS)
        if metadata is None:
            return [keys] * len(files)
        paths = sorted({one.partition_path for one in files})
        stored = ColumnStatistics(metadata).by_path(RECORD_KEY, pa.string(), paths)
        columns = (stored.column(name).to_pylist() for name in ("path", "min", "max"))
        ranges = {path: (low, high) for path, low, high in zip(*columns, strict=True)}
        ordered = KeysInOrder.of(keys)
        return [ordered.within(*ranges.get(one.path, (None, None))) for one in files]

    def _filtered(self, wanted: dict[BaseFile, pa.Array]) -> dict[BaseFile, Wanted]:
        """Return the keys that files with a filter in the metadata table may contain."""
        if len(wanted) > self.max_filters:
            return {}
        metadata = self.open_metadata(PartitionKind.BLOOM_FILTERS)
        if metadata is None:
            return {}
        by_name = {(one.partition_path, str(one.name)): one for one in wanted}
        found: dict[BaseFile, Wanted] = {}
        for name, bloom in BloomFilters(metadata).each(by_name):
            keys = wanted[by_name[name]]
            may_contain = pa.array(bloom.might_contain(keys))
            found[by_name[name]] = Wanted(keys.filter(may_contain), is_filtered=True)
        return found


@dataclass(frozen=True, slots=True)
class KeysInOrder:
    """Keys of which each file needs only those within its range.

    Bounds are in Java's order of strings, or in the order of their bytes, which is the same only
    for ASCII. So all keys are needed if a bound is not ASCII, and other keys than ASCII always.

    Attributes:
        keys: distinct keys.
        ordered: those in ASCII, in ascending order.
        others: the others.
    """

    keys: pa.Array
    ordered: pa.Array
    others: pa.Array

    @classmethod
    def of(cls, keys: pa.Array) -> KeysInOrder:
        """Sort keys, which are distinct strings, not null."""
        is_ascii = pc.string_is_ascii(keys)
        ascii_keys = keys.filter(is_ascii)
        ordered = ascii_keys.take(pc.array_sort_indices(ascii_keys))
        return cls(keys, ordered, keys.filter(pc.invert(is_ascii)))

    def within(self, low: str | None, high: str | None) -> pa.Array:
        """Return the keys within the bounds, and those whose order is uncertain."""
        if low is None or high is None or not (low.isascii() and high.isascii()):
            return self.keys
        start = bisect_left(self.ordered, low, key=_text)
        some = self.ordered[start : bisect_right(self.ordered, high, start, key=_text)]
        return pa.concat_arrays([some, self.others]) if len(self.others) else some


def _text(key: pa.StringScalar) -> str:
    return str(key)
