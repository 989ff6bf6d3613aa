"""Reads and writes the Parquet files that base files and log blocks contain.

Files are compressed with Zstandard by default. Lists have three levels, because engines other than
Apache Hudi do not read two-level lists. The footer has no Arrow schema, because readers must use
the Avro schema in the footer. Apache Hudi 1.2.0 has read and compacted such files in tests.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemark.config.parquet_settings import PARQUET_DEFAULTS, Compression, ParquetSettings
from lakemark.model.column_ranges import NO_SIZE, ColumnSize
from lakemark.model.meta_columns import COMMIT_SEQNO, RECORD_KEY
from lakemark.schema.avro import to_json

#: Largest row group, log block or batch, in bytes of Arrow memory. A single record may be larger.
MAX_BLOCK_BYTES = 64 << 20

#: Largest dictionary of a column. If the distinct values of a column need more bytes, the column is
#: written without a dictionary. Zstandard alone is better for keys, sequence numbers and measures:
#: compared with Arrow's limit of 1 MiB, writing 200,000 orders took a third less time and a sixth
#: less space.
_MAX_DICTIONARY_BYTES = 128 << 10


#: Columns without a dictionary. Their values are nearly all distinct, so that a writer would begin
#: a dictionary only to give it up.
_DISTINCT_COLUMNS = (COMMIT_SEQNO, RECORD_KEY)

#: The largest number of bytes that a row of a column with a dictionary has before compression. A
#: text without a dictionary takes at least four bytes.
_MAX_NUMBER_BYTES = 3

#: Arrow's names of the codecs, if they differ. In a Parquet file, Arrow's ``lz4`` is LZ4_RAW.
_ARROW_CODECS = {Compression.LZ4_RAW: "lz4", Compression.UNCOMPRESSED: "none"}


def parquet_writer(
    sink: io.RawIOBase | pa.NativeFile,
    schema: pa.Schema,
    settings: ParquetSettings = PARQUET_DEFAULTS,
    *,
    has_statistics: bool = True,
    has_page_index: bool = False,
) -> pq.ParquetWriter:
    """Return a writer of a Parquet file; the same rows always give the same bytes.

    Args:
        sink: the binary file or Arrow stream to write to.
        schema: Arrow schema with the types of the table's Avro schema, so that the writer does not
            convert timestamps.
        settings: compression, page size and dictionaries. The caller determines the row groups.
        has_statistics: whether row groups have statistics, with which readers skip row groups. See
            ``_has_safe_statistics`` for the columns without statistics.
        has_page_index: whether the file has a page index, with which readers skip pages.
    """
    columns = [leaf for field in schema for leaf in _leaves(field)]
    codec = Compression(settings.compression)
    return pq.ParquetWriter(
        sink,
        schema.remove_metadata(),
        version="2.6",
        compression=_ARROW_CODECS.get(codec, codec.value),
        compression_level=settings.compression_level,
        use_dictionary=[
            leaf.path
            for leaf in columns
            if settings.dictionary and leaf.path not in _DISTINCT_COLUMNS
        ],
        dictionary_pagesize_limit=_MAX_DICTIONARY_BYTES,
        data_page_size=settings.page_bytes,
        write_statistics=[
            leaf.path for leaf in columns if has_statistics and _has_safe_statistics(leaf.type)
        ],
        store_schema=False,
        use_compliant_nested_type=True,
        write_page_checksum=True,
        write_page_index=has_page_index,
    )


def open_parquet(
    source: BinaryIO | pa.NativeFile,
    pre_buffer: bool = False,
    footer: pq.FileMetaData | None = None,
    encoded: Collection[str] = (),
) -> pq.ParquetFile:
    """Open a Parquet file so that the checksums of pages are verified if the writer stored any.

    Apache Hudi and lakemark store checksums. Without this check, a flipped bit in a page would be
    read as another value. Checking two million rows takes no measurable time.

    Args:
        source: the file.
        pre_buffer: whether to read all requested columns ahead, in few large reads.
        footer: the footer of the file, if it was already read.
        encoded: the columns of texts that are read as dictionary-encoded columns.

    Raises:
        pyarrow.ArrowException, OSError: the file is not a Parquet file. A damaged page raises the
            same exceptions later, when it is read.
    """
    return pq.ParquetFile(
        source,
        metadata=footer,
        read_dictionary=list(encoded),
        pre_buffer=pre_buffer,
        page_checksum_verification=True,
    )


def repetitive_texts(file: pq.ParquetFile) -> list[str]:
    """Return the columns of texts that are stored with a dictionary, except for few rows."""
    sizes, rows = column_sizes(file.metadata), file.metadata.num_rows
    return [
        field.name
        for field in file.schema_arrow
        if pa.types.is_string(field.type)
        # Encoded keys would have to be decoded, because lakemark writes them without a dictionary.
        and field.name not in _DISTINCT_COLUMNS
        # A file without rows has no sizes.
        and sizes.get(field.name, NO_SIZE).uncompressed_bytes < _MAX_NUMBER_BYTES * rows
    ]


class ValueCounts:
    """Counts the values that were read from a Parquet file, to detect values that Arrow omits.

    Arrow does not report some kinds of damage in the header of a page. If the header has an unknown
    page type, Arrow skips the page. If the header has a smaller count, Arrow reads fewer entries of
    a list or map. No checksum covers the headers of pages.
    """

    def __init__(self) -> None:
        self._num_rows = 0
        # For each nested column and each of its arrays, the number of values of each leaf.
        self._levels: dict[str, list[list[int]]] = {}

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Count the values of rows. Pass the rows as they were read, before any cast."""
        self._num_rows += rows.num_rows
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            if not pa.types.is_nested(column.type):
                continue  # a flat column has as many values as rows
            for array in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                self._levels.setdefault(name, []).append(_num_levels(array))

    def check(self, file: pq.ParquetFile, groups: Sequence[int] | None = None) -> None:
        """Compare the counts with the footer of the file.

        Args:
            file: the file that was read.
            groups: the row groups that were read; None for all.

        Raises:
            pyarrow.ArrowInvalid: a count differs from the one in the footer.
        """
        read = range(file.num_row_groups) if groups is None else groups
        of_groups = [file.metadata.row_group(number) for number in read]
        _check_equal("rows", self._num_rows, sum(group.num_rows for group in of_groups))
        first = 0
        for field in file.schema_arrow:
            leaves = range(first, first + _num_leaves(field.type))
            first = leaves.stop
            if field.name in self._levels:
                found = [sum(of_leaf) for of_leaf in zip(*self._levels[field.name], strict=True)]
                expected = [sum(group.column(n).num_values for group in of_groups) for n in leaves]
                _check_equal(f"values of {field.name}", found, expected)


def check_value_counts(
    rows: pa.Table, file: pq.ParquetFile, groups: Sequence[int] | None = None
) -> None:
    """Check that no values are missing from rows that were read at once.

    Args:
        rows: all rows that were read, before any cast.
        file: the file that was read.
        groups: the row groups that were read; None for all.

    Raises:
        pyarrow.ArrowInvalid: a count differs from the one in the footer.
    """
    counts = ValueCounts()
    counts.add(rows)
    counts.check(file, groups)


def _check_equal(of_what: str, found: object, expected: object) -> None:
    if found != expected:
        message = f"read {found} {of_what}, but the footer has {expected}"
        raise pa.ArrowInvalid(message)


class _Leaf(NamedTuple):
    """A Parquet column: its path, and the Arrow type of its values."""

    path: str
    type: pa.DataType


def _leaves(field: pa.Field, above: str = "") -> Iterator[_Leaf]:
    """Yield the Parquet columns in which an Arrow column is stored."""
    path, kind = f"{above}{field.name}", field.type
    if pa.types.is_struct(kind):
        for child in kind:
            yield from _leaves(child, f"{path}.")
    elif pa.types.is_map(kind):
        yield from _leaves(kind.key_field.with_name("key"), f"{path}.key_value.")
        yield from _leaves(kind.item_field.with_name("value"), f"{path}.key_value.")
    elif pa.types.is_nested(kind):
        yield from _leaves(kind.field(0).with_name("element"), f"{path}.list.")
    else:
        yield _Leaf(path, kind)


def _has_safe_statistics(kind: pa.DataType) -> bool:
    """Return whether readers skip only row groups without a match by the statistics of a type.

    Arrow omits NaN from the bounds of floats. Spark orders NaN above all numbers, and Apache
    Parquet trusts the bounds. So for ``x > 5``, Spark would skip a row group with the values 1 and
    NaN. Apache Parquet's own writer stores NaN as a bound, and its reader ignores such bounds.
    """
    return not pa.types.is_floating(kind)


def _num_leaves(kind: pa.DataType) -> int:
    """Return the number of Parquet columns in which an Arrow column is stored."""
    if not pa.types.is_nested(kind):
        return 1
    return sum(_num_leaves(kind.field(place).type) for place in range(kind.num_fields))


def _num_levels(array: pa.Array) -> list[int]:
    """Return the number of values that Parquet stores for each leaf of an array.

    A list that is null or empty counts as one value.
    """
    kind = array.type
    if not pa.types.is_nested(kind):
        return [len(array)]
    if pa.types.is_struct(kind):
        return [n for place in range(kind.num_fields) for n in _num_levels(array.field(place))]
    lists = array.cast(pa.list_(kind.field(0).type)) if pa.types.is_map(kind) else array
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    num_empty = pc.sum(pc.equal(lengths, 0), min_count=0).as_py()
    return [num_empty + levels for levels in _num_levels(lists.flatten())]


def column_sizes(footer: pq.FileMetaData) -> dict[str, ColumnSize]:
    """Return the total size of each column over all row groups, by the path of the column."""
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
    """Return the footer entries that Apache Parquet's reader needs to read rows as Avro records."""
    return {"parquet.avro.schema": to_json(avro_schema), "writer.model.name": "avro"}
