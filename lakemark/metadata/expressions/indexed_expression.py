"""The expression indexes of a table, and which of them lakemark updates.

The definition of an index names a function, its options and the column. lakemark updates an index
if it computes the function as Spark does. A table with another expression index is refused for
writing, because statistics that lack a file's values would hide its rows from Apache Hudi.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lakemark.errors import Unsupported
from lakemark.metadata.expressions.expression_text import print_expression
from lakemark.metadata.expressions.functions import BloomSizes, IndexFunction, find_function
from lakemark.metadata.index_definition import DEFINITIONS_PATH, IndexDefinition
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.format_version import FormatVersion

COLUMN_STATS = PartitionKind.COLUMN_STATS.stored_name
BLOOM_FILTERS = PartitionKind.BLOOM_FILTERS.stored_name

#: Precedes the partition in the keys of statistics of whole partitions.
OF_PARTITIONS = "__partition_stat__"

#: What a user can do about an index that lakemark does not update.
_REMEDY = "drop the index (lakemark table index drop), or write with Apache Hudi"


@dataclass(frozen=True, slots=True)
class IndexedExpression:
    """An expression with an index.

    Attributes:
        partition: the partition ``expr_index_<name>`` of the metadata table.
        kind: ``column_stats`` or ``bloom_filters``.
        column: the column that the function is applied to.
        function: the name of the function.
        options: the options of the definition, with the arguments of the function.
        version: format version of the index, ``V1`` or ``V2``.
    """

    partition: str
    kind: str
    column: str
    function: str
    options: Mapping[str, str] = field(hash=False)
    version: str

    @property
    def has_statistics(self) -> bool:
        """Whether this is an index of statistics, not of bloom filters."""
        return self.kind == COLUMN_STATS

    @property
    def text(self) -> str:
        """The expression, as ``parse_expression`` reads it."""
        return print_expression(self.function, self.column, self.options)

    def has_same_values(self, other: IndexedExpression) -> bool:
        """Return whether an index of another expression has the same records."""
        return (self.kind, self.text) == (other.kind, other.text)

    @property
    def definition(self) -> IndexDefinition:
        """The definition of the index, as stored."""
        fields = (self.column,)
        return IndexDefinition(
            self.partition, self.kind, self.function, fields, self.options, self.version
        )

    def function_of(self, schema: pa.Schema) -> IndexFunction:
        """Return the function for the column's type.

        Args:
            schema: the columns of the table.

        Raises:
            Unsupported: the table has no such column, or lakemark does not compute the function.
        """
        if self.column not in schema.names:
            message = f"{self.partition} is an index of {self.column!r}, which the table lacks"
            raise Unsupported(message)
        found = find_function(self.function, self.options, schema.field(self.column).type)
        if not self.has_statistics:
            BloomSizes.of(self.options)
            _check_has_text(self.function, found.result_type)
        return found

    def is_readable_in(self, version: FormatVersion, schema: pa.Schema) -> bool:
        """Return whether Apache Hudi can read the index in a table of this version.

        Before version 9, it reads the bounds of dates and timestamps as values of the type of the
        column, and fails at values of another type.

        Raises:
            Unsupported: as for ``function_of``.
        """
        kind, result = schema.field(self.column).type, self.function_of(schema).result_type
        is_time = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        is_misread = self.has_statistics and is_time and kind != result
        return version >= FormatVersion.V9 or not is_misread


def is_expression_index(partition: str) -> bool:
    """Return whether a partition of the metadata table is an expression index, by its name."""
    return partition.startswith(PartitionKind.EXPRESSION_INDEX.stored_name)


def indexed_expressions(
    partitions: Iterable[str], definitions: Mapping[str, IndexDefinition], url: str
) -> tuple[IndexedExpression, ...]:
    """Return the expression indexes among some partitions, sorted by partition.

    Args:
        partitions: names of partitions of the metadata table, of any kind.
        definitions: the definitions of the table's indexes.
        url: URL of the table, for errors.

    Raises:
        Unsupported: the table has no definition of an index, or the index is of an unknown kind, of
            several columns or of a field inside a struct.
    """
    named = sorted(filter(is_expression_index, partitions))
    return tuple(_expression(one, definitions.get(one), url) for one in named)


def check_expressions(
    expressions: Iterable[IndexedExpression], schema: pa.Schema, url: str
) -> None:
    """Check that lakemark computes the expressions of these indexes.

    Args:
        expressions: the expression indexes.
        schema: the columns of the table.
        url: URL of the table, for errors.

    Raises:
        Unsupported: lakemark does not compute one of the expressions, or not of its column's type.
    """
    for one in expressions:
        try:
            one.function_of(schema)
        except Unsupported as error:
            message = (
                f"lakemark does not update the index {one.partition} of table {url}: {error}; "
                f"{_REMEDY}"
            )
            raise Unsupported(message) from error


def _check_has_text(function: str, kind: pa.DataType) -> None:
    """Check that Apache Hudi looks up the same text of a value as it adds to bloom filters."""
    if kind not in (pa.string(), pa.int32(), pa.int64()):
        message = (
            f"{function} has values of {kind}, but lakemark updates only bloom filters of texts "
            "and integers"
        )
        raise Unsupported(message)


def _expression(partition: str, stored: IndexDefinition | None, url: str) -> IndexedExpression:
    fields = stored.source_fields if stored else ()
    is_known = stored is not None and stored.kind in (COLUMN_STATS, BLOOM_FILTERS)
    if stored is None or not is_known or len(fields) != 1 or "." in fields[0]:
        found = f"of kind {stored.kind!r} and columns {list(fields)}" if stored else "undefined"
        message = (
            f"the index {partition} of table {url} is {found} in {DEFINITIONS_PATH}, but lakemark "
            f"updates only indexes of {COLUMN_STATS} or {BLOOM_FILTERS} of one column; {_REMEDY}"
        )
        raise Unsupported(message)
    return IndexedExpression(
        partition, stored.kind, fields[0], stored.function, stored.options, stored.version
    )
