"""The Parquet format of base files and of log blocks.

Zstandard, three-level lists (Apache Hudi reads both kinds, other engines only these), and no Arrow
schema in the footer, because readers must use the Avro schema there. Tested with Apache Hudi 1.2.0,
which reads and compacts the result.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lakemark.model.column_ranges import NO_SIZE, ColumnSize
from lakemark.schema.avro import to_json

#: Largest row group, log block or batch, in bytes of Arrow memory (or one larger record).
MAX_BLOCK_BYTES = 64 << 20

#: A column whose distinct values do not fit is written without dictionary, because Zstandard alone
#: is better for keys, sequence numbers and measures: a third less time and a sixth less space than
#: with Arrow's 1 MiB, on 200,000 orders.
_MAX_DICTIONARY_BYTES = 128 << 10


def parquet_writer(sink: io.RawIOBase | pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
    """Open a writer to a binary file or an Arrow stream; equal rows give equal bytes.

    Args:
        sink: the file.
        schema: with the types of the table's Avro schema, so that no time is coerced.
    """
    return pq.ParquetWriter(
        sink,
        schema.remove_metadata(),
        version="2.6",
        compression="zstd",
        dictionary_pagesize_limit=_MAX_DICTIONARY_BYTES,
        store_schema=False,
        use_compliant_nested_type=True,
        write_page_checksum=True,
    )


def open_parquet(source: BinaryIO | pa.NativeFile, pre_buffer: bool = False) -> pq.ParquetFile:
    """Open a Parquet file, and verify the checksums of pages, if the writer stored any.

    Apache Hudi's writer stores them, and so does this project. Without the check a flipped bit in a
    page is read as another value. Checking two million rows takes no measurable time.

    Args:
        source: the file.
        pre_buffer: whether to read the requested columns ahead and at once.

    Raises:
        pyarrow.ArrowException, OSError: it is not a Parquet file; or later, a page is damaged.
    """
    return pq.ParquetFile(source, pre_buffer=pre_buffer, page_checksum_verification=True)


def check_row_count(
    found: int, footer: pq.FileMetaData, groups: Sequence[int] | None = None
) -> None:
    """Check that no page was skipped: Arrow skips a page whose header has an unknown type.

    Args:
        found: number of rows that were read.
        footer: of the file.
        groups: the row groups that were read; None for all.

    Raises:
        pyarrow.ArrowInvalid: the number differs from the footer's.
    """
    read = range(footer.num_row_groups) if groups is None else groups
    expected = sum(footer.row_group(group).num_rows for group in read)
    if found != expected:
        message = f"read {found} rows, but the footer has {expected}"
        raise pa.ArrowInvalid(message)


def column_sizes(footer: pq.FileMetaData) -> dict[str, ColumnSize]:
    """Size of each column over all row groups, by its path."""
    sizes: dict[str, ColumnSize] = {}
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for chunk in map(group.column, range(group.num_columns)):
            known = sizes.get(chunk.path_in_schema, NO_SIZE)
            sizes[chunk.path_in_schema] = ColumnSize(
                known.size_bytes + chunk.total_compressed_size,
                known.uncompressed_bytes + chunk.total_uncompressed_size,
            )
    return sizes


def avro_key_values(avro_schema: Mapping[str, object]) -> dict[str, str]:
    """Footer entries with which Apache's Parquet reader reads the rows as Avro records."""
    return {"parquet.avro.schema": to_json(avro_schema), "writer.model.name": "avro"}
