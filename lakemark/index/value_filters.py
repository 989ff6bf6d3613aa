"""Skips the file groups of queries by value, by expression indexes of bloom filters.

A condition such as ``name = 'X'`` demands a value of a column. The expression then has the value
``lower('X')``, too. A filter finds each value that was added to it. So a file slice is skipped if
each of its files has a filter without the value, because a row of the slice has the value of one of
its files.

Source: ``ExpressionIndexSupport`` of Apache Hudi 1.2.0, which uses such an index only if the
condition is about the expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import Unsupported
from lakemark.metadata.bloom_filters import BloomFilters
from lakemark.metadata.column_stats.derive import files_of
from lakemark.metadata.expressions.indexed_expression import (
    IndexedExpression,
    indexed_expressions,
    is_expression_index,
)
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.model.file_slice import FileSlice
from lakemark.read.demanded_keys import MAX_KEYS
from lakemark.read.demanded_values import DemandedValues

#: Largest number of filters that are read: Apache Hudi stores 430 KB for each file.
MAX_FILTERS = 1_000

_Slices = Sequence[FileSlice]


@dataclass(frozen=True, slots=True)
class ValueFilters:
    """Selects file slices by bloom filters of expressions; implements ``SliceSearch``.

    Attributes:
        metadata: the metadata table that contains the indexes.
        texts: for each partition with such an index, the values of the expression of which each
            row of the query has one, as text.
    """

    metadata: MetadataTable
    texts: Mapping[str, pa.StringArray]

    def select(self, slices: _Slices) -> _Slices:
        """See ``SliceSearch.select``. A single slice is not searched."""
        for partition, texts in self.texts.items():
            if 1 < len(slices) <= MAX_FILTERS:
                slices = self._select(slices, BloomFilters(self.metadata, partition), texts)
        return slices

    def _select(self, slices: _Slices, filters: BloomFilters, texts: pa.StringArray) -> _Slices:
        names = [
            [(file.partition_path, str(file.name)) for file in files_of([one])] for one in slices
        ]
        every = [name for some in names for name in some]
        if len(every) > MAX_FILTERS:
            return slices
        try:
            found = filters.each(every)
            absent = {name for name, bloom in found if not bloom.might_contain(texts).any()}
        except Unsupported:  # a filter of an unknown type, which may have any value
            return slices
        pairs = zip(slices, names, strict=True)
        return [one for one, some in pairs if not absent.issuperset(some)]


def filters_of_values(
    metadata: MetadataTable,
    partitions: frozenset[str],
    values: DemandedValues,
    schema: pa.Schema,
    url: str,
) -> ValueFilters | None:
    """Return the bloom filters that decide about demanded values; None if there are none.

    Args:
        metadata: the metadata table.
        partitions: its partitions with an expression index that may be used.
        values: the values that the condition demands.
        schema: the columns of the table.
        url: URL of the table, for errors.
    """
    texts = {
        one.partition: found
        for one in _with_filters(metadata, partitions, url)
        if one.column in values and (found := _texts(one, values[one.column], schema)) is not None
    }
    return ValueFilters(metadata, texts) if texts else None


def _with_filters(
    metadata: MetadataTable, partitions: frozenset[str], url: str
) -> Iterator[IndexedExpression]:
    """Yield the expressions with bloom filters whose definitions lakemark understands."""
    for partition in sorted(filter(is_expression_index, partitions)):
        try:
            (one,) = indexed_expressions([partition], metadata.definitions, url)
        except Unsupported:
            continue
        if not one.has_statistics:
            yield one


def _texts(
    expression: IndexedExpression, values: frozenset[object], schema: pa.Schema
) -> pa.StringArray | None:
    """Return the expression's values as texts; None if the filters do not decide about them.

    The filters contain neither nulls nor empty texts. Apache Hudi 1.2.0 adds texts in the default
    charset of Java (``HoodieDynamicBoundedBloomFilter.add``). If that is not UTF-8, a filter lacks
    the UTF-8 of texts that are not ASCII.
    """
    try:
        function = expression.function_of(schema)
        column = pa.array(list(values), schema.field(expression.column).type)
    except (Unsupported, pa.ArrowException):
        return None
    computed = function.compute(column)
    if column.null_count or not len(column) or not computed.is_exact or len(column) > MAX_KEYS:
        return None
    texts = computed.lows.cast(pa.string())
    is_found = pc.and_(pc.string_is_ascii(texts), pc.not_equal(texts, ""))
    return texts if pc.all(is_found).as_py() else None
