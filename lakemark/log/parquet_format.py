"""How Parquet is written, in base files and in log blocks alike.

Tried on tables of Apache Hudi 1.2.0, which reads and compacts the result: Zstandard, three-level
lists (Apache reads both, other engines only these), no Arrow schema in the footer, since the Avro
schema there is the one that counts.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lakemark.model.column_ranges import NO_SIZE, ColumnSize
from lakemark.schema.avro import to_json

#: Largest row group, log block or batch, in bytes of Arrow memory (a larger record is alone).
MAX_BLOCK_BYTES = 64 << 20

#: A column of more distinct values than fit is written plainly, since Zstandard alone does better
#: on keys, sequence numbers and measures: a third less time and a sixth less space than with
#: Arrow's 1 MiB, on 200,000 orders.
_MAX_DICTIONARY_BYTES = 128 << 10


def parquet_writer(sink: io.RawIOBase | pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer onto a binary file or an Arrow stream; equal rows give equal bytes.

    ``schema`` holds the types that the table's Avro schema maps to, so that no time is coerced.
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
    """A Parquet file whose pages are held against their checksums, where the writer stored any.

    Apache Hudi's writer does, and so does ours. Without the check a flipped bit in a page is read
    as another value. Checking two million rows takes no measurable time.

    Args:
        source: the file.
        pre_buffer: read what is asked for ahead and at once.

    Raises:
        pyarrow.ArrowException, OSError: it is no Parquet file; later, when a page is damaged.
    """
    return pq.ParquetFile(source, pre_buffer=pre_buffer, page_checksum_verification=True)


def check_row_count(
    found: int, footer: pq.FileMetaData, groups: Sequence[int] | None = None
) -> None:
    """Make sure that no page was passed over: Arrow skips one whose header is of no known type.

    Args:
        found: rows that were read.
        footer: of the file.
        groups: the row groups that were read; None for all.

    Raises:
        pyarrow.ArrowInvalid: there are fewer rows, or more, than the footer says.
    """
    read = range(footer.num_row_groups) if groups is None else groups
    expected = sum(footer.row_group(group).num_rows for group in read)
    if found != expected:
        message = f"{found} of the {expected} rows that the footer names"
        raise pa.ArrowInvalid(message)


def column_sizes(footer: pq.FileMetaData) -> dict[str, ColumnSize]:
    """Bytes of each column over all row groups, by its path."""
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
    """Footer entries through which Apache's Parquet reader sees the rows as Avro records."""
    return {"parquet.avro.schema": to_json(avro_schema), "writer.model.name": "avro"}
