"""Derives the values of an expression in data files: their statistics, or their bloom filter.

The statistics of a file have the name and the file of the column, but count only values that are
not null. A log is indexed by itself, as in Apache Hudi: a query reads a file slice if any of its
files may contain the value. Only the column is read. Source: ``getExprIndexRecords`` of
``SparkMetadataWriterUtils``, Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.bloom import BLOOM_FILTER, TYPE_CODE, BloomFilterBuilder
from lakemark.errors import Refused
from lakemark.metadata.bloom_filter_records import StoredFilter, encode_filters
from lakemark.metadata.column_stats.derive import read_log_rows
from lakemark.metadata.column_stats.encode import StatisticsEntry, encode_column_statistics
from lakemark.metadata.expressions.functions import BloomSizes, IndexFunction
from lakemark.metadata.expressions.indexed_expression import IndexedExpression
from lakemark.metadata.record_changes import RecordChanges
from lakemark.model.bounds import bounds_of
from lakemark.model.column_ranges import ColumnRanges, ColumnSize
from lakemark.model.file_slice import LogFile
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.read.base_file import read_base_file
from lakemark.read.projection import conform
from lakemark.storage.parallel_requests import request_all
from lakemark.storage.storage import Storage
from lakemark.view.file_lister import DataFile


@dataclass(frozen=True, slots=True)
class FileValues:
    """Derives the values of one expression in the files of a table.

    Attributes:
        storage: the table's root.
        expression: the expression and its index.
        column: the column of the expression, with its current type.
        function: the function of the expression.
    """

    storage: Storage
    expression: IndexedExpression
    column: pa.Field
    function: IndexFunction

    @classmethod
    def of(cls, storage: Storage, expression: IndexedExpression, schema: pa.Schema) -> FileValues:
        """Return the values of an expression in a table with these columns.

        Raises:
            Unsupported: lakemark does not compute the expression.
        """
        function = expression.function_of(schema)
        return cls(storage, expression, schema.field(expression.column), function)

    @property
    def statistics_schema(self) -> pa.Schema:
        """The name of the column, with the type of the expression's values."""
        return pa.schema([pa.field(self.expression.column, self.function.result_type)])

    def encode(self, files: Sequence[DataFile]) -> RecordChanges:
        """Encode the records of distinct files in the index.

        Raises:
            Refused: the index has bloom filters, and a file contains a null.
            SnapshotChanged, CorruptData, Unsupported: a file cannot be read.
        """
        if not self.expression.has_statistics:
            found = request_all(self.storage, self.bloom_filter, files)
            return encode_filters(zip(files, found, strict=True))
        return self.encode_ranges(files, request_all(self.storage, self.ranges, files))

    def encode_ranges(
        self, files: Sequence[DataFile], ranges: Sequence[ColumnRanges]
    ) -> RecordChanges:
        """Encode the statistics of distinct files, which ``ranges`` returned."""
        entries = [
            StatisticsEntry(file.partition_path, str(file.name), one)
            for file, one in zip(files, ranges, strict=True)
        ]
        return encode_column_statistics(entries, self.expression.version)

    def ranges(self, file: DataFile) -> ColumnRanges:
        """Return the statistics of a file, also if it has no value.

        Raises:
            SnapshotChanged, CorruptData, Unsupported: the file cannot be read.
        """
        nothing = ColumnRanges.of_nulls(self.statistics_schema, 0)
        whole = ColumnRanges.union([nothing, *map(self._range, self._chunks(file))])
        # As in Apache Hudi, which does not know the size of the column.
        size = ColumnSize(file.size_bytes, 2 * file.size_bytes)
        return replace(whole, sizes={self.expression.column: size})

    def bloom_filter(self, file: DataFile) -> StoredFilter | None:
        """Return the bloom filter of a file; None if some values depend on the session.

        Queries read a file without a filter. Apache Hudi cannot add an empty text to a filter, nor
        look it up, so the filters have none.

        Raises:
            Refused: the file contains a null, at which Apache Hudi fails when it reads the file.
            SnapshotChanged, CorruptData, Unsupported: the file cannot be read.
        """
        texts = self.distinct_texts(file)
        if texts is None:
            return None
        if texts.null_count:
            raise self._has_null(file)
        return self._filter_of(texts)

    def distinct_texts(self, file: DataFile) -> pa.Array | None:
        """Return the distinct values of a file as texts, with null, but without the empty text.

        The result is None if some values depend on the session.
        """
        distinct: list[pa.Array] = []
        for chunk in self._chunks(file):
            values = self.function.compute(pc.unique(chunk))
            if not values.is_exact:
                return None
            distinct.append(values.lows.cast(pa.string()))
        texts = pc.unique(pa.chunked_array(distinct, pa.string()))
        return texts.filter(pc.fill_null(pc.not_equal(texts, ""), fill_value=True))

    def has_exact_values(self, file: DataFile) -> bool:
        """Return whether no value of a file depends on the session."""
        return all(self.function.compute(chunk).is_exact for chunk in self._chunks(file))

    def _filter_of(self, texts: pa.Array) -> StoredFilter:
        sizes = BloomSizes.of(self.expression.options)
        keys_per_row = max(1, min(len(texts), sizes.keys_per_row))
        builder = BloomFilterBuilder(keys_per_row, sizes.false_positives, sizes.max_keys)
        builder.add(texts)
        footer = builder.footer()
        return StoredFilter(footer[TYPE_CODE].encode(), footer[BLOOM_FILTER].encode())

    def _has_null(self, file: DataFile) -> Refused:
        one = self.expression
        message = (
            f"a row of {file.path} has a null in column {one.column!r}, but Apache Hudi fails at "
            f"nulls in {one.partition}, an index of bloom filters; write no nulls, or drop the "
            "index (lakemark table index drop)"
        )
        return Refused(message)

    def _range(self, chunk: pa.Array) -> ColumnRanges:
        """Return the statistics of some values of the column."""
        used = chunk
        if self.function.is_ordered:
            extremes = pc.min_max(chunk)
            used = pa.array([extremes["min"], extremes["max"]], chunk.type)
        values = self.function.compute(used)
        low, high = (bounds_of(pa.chunked_array([one])) for one in (values.lows, values.highs))
        bounds = pa.concat_arrays([low[:1], high[1:]])
        counts = (chunk.null_count,), (len(chunk) - chunk.null_count,)
        names = [self.expression.column]
        return ColumnRanges(pa.RecordBatch.from_arrays([bounds], names), *counts)

    def _chunks(self, file: DataFile) -> Iterator[pa.Array]:
        """Yield the values of the column in a file, in its current type."""
        wanted = pa.schema([self.column])
        for rows in self._rows(file):
            yield from conform(rows, wanted, file.path).column(0).chunks

    def _rows(self, file: DataFile) -> Iterator[pa.Table]:
        if not isinstance(file, LogFile):
            yield from read_base_file(self.storage, file, pa.schema([self.column]))
            return
        # The record key is read, too, because a table without columns has no number of rows.
        for block, rows in read_log_rows(self.storage, file, [RECORD_KEY, self.column.name]):
            # A partial row without the column keeps the value of the row before.
            if self.column.name in rows.column_names or not block.is_partial:
                yield rows
