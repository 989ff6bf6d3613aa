"""Reads the bloom filters of base files from the metadata table.

``bloom_filter_records`` creates the records.
Source: ``BaseTableMetadata.getBloomFilters`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from lakemark.codec.bloom import BloomFilter
from lakemark.codec.hfile.selection import Keys
from lakemark.errors import CorruptData
from lakemark.metadata.index_keys import bloom_filter_key
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.slice_rows import KEY, PAYLOAD


@dataclass(frozen=True)
class BloomFilters:
    """Reads the partition ``bloom_filters``.

    Attributes:
        metadata: the metadata table that contains the filters.
        partition: ``bloom_filters``, or the partition of an expression index of bloom filters.
    """

    metadata: MetadataTable
    partition: str = PartitionKind.BLOOM_FILTERS.stored_name

    def of_files(self, files: Iterable[tuple[str, str]]) -> dict[tuple[str, str], BloomFilter]:
        """Return the bloom filter of each file that has one; as for ``each``."""
        return dict(self.each(files))

    def each(
        self, files: Iterable[tuple[str, str]]
    ) -> Iterator[tuple[tuple[str, str], BloomFilter]]:
        """Yield each file that has a bloom filter, by partition path and file name, and its filter.

        A filter takes several megabytes of memory, so they are not all in memory at a time.

        Args:
            files: partition path and name of each base file.

        Raises:
            SnapshotChanged: the metadata table was compacted in the meantime; open it again.
            CorruptData: bytes of the metadata table or of a filter do not match the format.
            Unsupported: the type of a filter is unknown.
        """
        names = {bloom_filter_key(*file).decode(): file for file in files}
        parts = self.metadata.parts(self.partition, Keys.of_any(pa.array(names, pa.string())))
        for rows in self.metadata.newest(parts, PartitionKind.BLOOM_FILTERS.payload):
            for row in rows.to_pylist():
                if not row[PAYLOAD]["isDeleted"]:
                    file = names[row[KEY]]
                    yield file, self._parse(row[PAYLOAD], file)

    def _parse(self, stored: dict[str, object], file: tuple[str, str]) -> BloomFilter:
        path = f"bloom filter of {'/'.join(file)} in {self.partition}"
        text, type_code = stored["bloomFilter"], stored["type"]
        if not isinstance(text, bytes) or not isinstance(type_code, str) or not text.isascii():
            raise CorruptData(path, None, "a filter in Base64 and its type", repr(type_code))
        return BloomFilter.parse(text.decode("ascii"), type_code, path)
