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
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemark.model.column_ranges import NO_SIZE, ColumnSize
from lakemark.model.meta_columns import COMMIT_SEQNO, RECORD_KEY
from lakemark.schema.avro import to_json

#: Largest row group, log block or batch, in bytes of Arrow memory (or one larger record).
MAX_BLOCK_BYTES = 64 << 20

#: A column whose distinct values do not fit is written without dictionary, because Zstandard alone
#: is better for keys, sequence numbers and measures: a third less time and a sixth less space than
#: with Arrow's 1 MiB, on 200,000 orders.
_MAX_DICTIONARY_BYTES = 128 << 10


#: Columns whose values are nearly all distinct: a dictionary for them is begun and given up.
_DISTINCT_COLUMNS = (COMMIT_SEQNO, RECORD_KEY)


def parquet_writer(
    sink: io.RawIOBase | pa.NativeFile, schema: pa.Schema, *, has_statistics: bool = True
) -> pq.ParquetWriter:
    """Open a writer to a binary file or an Arrow stream; equal rows give equal bytes.

    Args:
        sink: the file.
        schema: with the types of the table's Avro schema, so that no time is coerced.
        has_statistics: whether row groups have statistics, by which readers skip them.
    """
    return pq.ParquetWriter(
        sink,
        schema.remove_metadata(),
        version="2.6",
        compression="zstd",
        use_dictionary=[
            path
            for field in schema
            if field.name not in _DISTINCT_COLUMNS
            for path in leaf_paths(field)
        ],
        dictionary_pagesize_limit=_MAX_DICTIONARY_BYTES,
        write_statistics=has_statistics,
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


class ValueCounts:
    """Counts the values that were read of a Parquet file, to notice what Arrow leaves out silently.

    Arrow skips a page whose header has an unknown type, and reads fewer entries of a list or map if
    the header has a smaller count. No checksum covers the headers of pages.
    """

    def __init__(self) -> None:
        self._num_rows = 0
        self._levels: dict[str, list[list[int]]] = {}  # of each array, for each leaf

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Count rows as they were read, before any cast."""
        self._num_rows += rows.num_rows
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            if not pa.types.is_nested(column.type):
                continue  # the number of its values is the number of rows
            for array in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
                self._levels.setdefault(name, []).append(_num_levels(array))

    def check(self, file: pq.ParquetFile, groups: Sequence[int] | None = None) -> None:
        """Compare with the footer.

        Args:
            file: that was read.
            groups: the row groups that were read; None for all.

        Raises:
            pyarrow.ArrowInvalid: a number differs from the footer's.
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
    """Check that rows that were read at once are whole; see ``ValueCounts.check``."""
    counts = ValueCounts()
    counts.add(rows)
    counts.check(file, groups)


def _check_equal(of_what: str, found: object, expected: object) -> None:
    if found != expected:
        message = f"read {found} {of_what}, but the footer has {expected}"
        raise pa.ArrowInvalid(message)


def leaf_paths(field: pa.Field, above: str = "") -> list[str]:
    """Return the paths of the Parquet columns that hold an Arrow column."""
    path, kind = f"{above}{field.name}", field.type
    if pa.types.is_struct(kind):
        return [leaf for child in kind for leaf in leaf_paths(child, f"{path}.")]
    if pa.types.is_map(kind):
        pair = [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
        return [leaf for child in pair for leaf in leaf_paths(child, f"{path}.key_value.")]
    if pa.types.is_nested(kind):
        return leaf_paths(kind.field(0).with_name("element"), f"{path}.list.")
    return [path]


def _num_leaves(kind: pa.DataType) -> int:
    """Return the number of Parquet columns that hold an Arrow column."""
    if not pa.types.is_nested(kind):
        return 1
    return sum(_num_leaves(kind.field(place).type) for place in range(kind.num_fields))


def _num_levels(array: pa.Array) -> list[int]:
    """Number of values that Parquet stores for each leaf; a null or empty list counts as one."""
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
    """Return the size of each column over all row groups, by its path."""
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
