"""Checks that a table may have an index, before the index is announced and built."""

from __future__ import annotations

import pyarrow as pa

from lakemark.config import keys
from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.metadata.expressions.expression_text import parse_expression
from lakemark.metadata.expressions.indexed_expression import BLOOM_FILTERS, IndexedExpression
from lakemark.metadata.expressions.indexed_expression import COLUMN_STATS as STATISTICS
from lakemark.metadata.index_definition import is_partitioned, read_definitions
from lakemark.metadata.index_sources import COLUMN_STATS, PARTITION_STATS, RECORD_INDEX, Indexed
from lakemark.metadata.new_index import NewIndex
from lakemark.metadata.partition_kind import has_record_index
from lakemark.metadata.secondary_columns import SecondaryColumn, has_unambiguous_text
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import META_COLUMNS
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_index import has_bucket_index, has_global_keys
from lakemark.operations.table_indexes import name_of


def parse_index(
    partition: str, expression: str, kind: str, version: FormatVersion
) -> IndexedExpression:
    """Parse the expression of a new index.

    Args:
        partition: the partition of the index in the metadata table.
        expression: the expression, such as ``lower(name)``.
        kind: ``column_stats`` or ``bloom_filters``.
        version: the version of the table.

    Raises:
        InvalidConfig: the expression or the kind is unknown.
    """
    if kind not in (STATISTICS, BLOOM_FILTERS):
        message = f"{kind!r} is no kind of expression index; use {STATISTICS} or {BLOOM_FILTERS}"
        raise InvalidConfig(message)
    function, column, options = parse_expression(expression)
    of_new = version.column_statistics
    return IndexedExpression(partition, kind, column, function, options, of_new)


def check_may_have(
    table: OpenTable, properties: TableProperties, index: NewIndex, indexed: Indexed | None
) -> None:
    """Check that a table with these properties may have an index that it lacks.

    Args:
        table: the open table.
        properties: the properties of the table, which name a metadata table.
        index: the index.
        indexed: what an index with an own name indexes.

    Raises:
        InvalidConfig: the table has such an index, but of another column or expression, or with
            keys that are unique elsewhere; or it has no such column.
        Unsupported: the table may not have such an index, or lakemark does not update it.
    """
    if isinstance(indexed, SecondaryColumn):
        _check_may_have_values(table, properties)
        _check_same_column(table, properties, indexed)
        _check_column(table, indexed)
    elif indexed is not None:
        _check_may_have_expression(table, indexed)
        _check_same_expression(table, properties, indexed)
        _check_expression(table, indexed)
    elif index is PARTITION_STATS:
        _check_may_have_partition_stats(table, properties)
    elif index.partition == RECORD_INDEX.partition:
        _check_may_have_locations(table)
        _check_same_scope(table, properties, index)


def _check_same_scope(table: OpenTable, properties: TableProperties, index: NewIndex) -> None:
    """Check that a table has no record index whose keys are unique elsewhere.

    Raises:
        InvalidConfig: it has; or its commits keep keys unique in the whole table, and the index
            would have keys of each partition.
    """
    url, partitioned = table.location.url, index.is_partitioned
    if partitioned and has_global_keys(table):
        message = (
            f"commits of table {url} keep each record key unique in the whole table "
            f"({keys.INDEX}: {keys.GLOBAL_LOOKUP}), which a partitioned record index does not "
            "show; create a record index without partitioned"
        )
        raise InvalidConfig(message)
    has_index = index.partition in properties.metadata_indexes
    if has_index and is_partitioned(read_definitions(table.storage)) is not partitioned:
        where = "the whole table" if partitioned else "a partition"
        message = (
            f"table {url} has a record index whose keys are unique in {where}; to replace it, "
            f"drop it first (lakemark table index drop {url} {index.partition} --run)"
        )
        raise InvalidConfig(message)


def _check_may_have_locations(table: OpenTable) -> None:
    """Check that a table may have a record index.

    Raises:
        Unsupported: the hash of a key decides its file group.
    """
    is_hashed = table.first_ring_count is not None
    if is_hashed or has_bucket_index(table):
        kind = "consistent hashing" if is_hashed else "a bucket index"
        message = (
            f"table {table.location.url} has {kind}, so that writers find keys without a record "
            "index, and Apache Hudi would not add all keys to it; no record index is created. A "
            "record index needs a table with a lookup index: one that a pipeline with table.index: "
            "lookup or lakemark.create(…, index='lookup') has created"
        )
        raise Unsupported(message)


def _check_may_have_values(table: OpenTable, properties: TableProperties) -> None:
    """Check that a table may have a secondary index.

    Raises:
        Unsupported: the table has no record index of the whole table, or has version 6.
    """
    url = table.location.url
    if not table.version >= FormatVersion.V8:
        message = (
            f"table {url} has version {int(table.version)}, in which tables have no secondary "
            "index; upgrade the table (lakemark table upgrade)"
        )
        raise Unsupported(message)
    if not has_record_index(properties):
        _check_may_have_locations(table)
        message = (
            f"table {url} has no record index, which a secondary index needs; create it first "
            f"(lakemark table index create {url} record_index --run)"
        )
        raise Unsupported(message)
    if is_partitioned(read_definitions(table.storage)):
        message = (
            f"table {url} has a partitioned record index, but a secondary index needs a record "
            "index of the whole table, because it has no partitions of its record keys; if each "
            "key has one row in the whole table, replace the record index (lakemark table index "
            f"drop {url} {RECORD_INDEX.partition} --run, then lakemark table index create {url} "
            f"{RECORD_INDEX.partition} --run)"
        )
        raise Unsupported(message)


def _check_may_have_expression(table: OpenTable, expression: IndexedExpression) -> None:
    """Check that a table may have an expression index.

    Raises:
        Unsupported: the table has version 6; or Apache Hudi 1.2.0 could not write logs any more,
            because it fails at logs in an index of bloom filters.
    """
    if not table.version >= FormatVersion.V8:
        message = (
            f"table {table.location.url} has version {int(table.version)}, in which tables have no "
            "expression index; upgrade the table (lakemark table upgrade)"
        )
        raise Unsupported(message)
    if table.properties.is_merge_on_read and not expression.has_statistics:
        message = (
            f"table {table.location.url} is a merge-on-read table, to which Apache Hudi cannot "
            f"write logs if it has an expression index of {BLOOM_FILTERS}; create an index of "
            f"{STATISTICS}"
        )
        raise Unsupported(message)


def _check_may_have_partition_stats(table: OpenTable, properties: TableProperties) -> None:
    """Check that a table may have statistics of partitions.

    Raises:
        Unsupported: the table has no column statistics, or has version 6.
    """
    url = table.location.url
    if not table.version >= FormatVersion.V8:
        message = (
            f"table {url} has version {int(table.version)}, in which tables have no "
            "partition_stats; upgrade the table (lakemark table upgrade)"
        )
        raise Unsupported(message)
    if COLUMN_STATS.partition not in properties.stored_metadata_partitions:
        message = (
            f"table {url} has no column_stats, which partition_stats needs; create them first "
            f"(lakemark table index create {url} column_stats --run)"
        )
        raise Unsupported(message)


def _check_column(table: OpenTable, column: SecondaryColumn) -> None:
    """Check that a table has a column, and that lakemark knows the texts of its values.

    Raises:
        InvalidConfig: there is no such column.
        Unsupported: the values are neither texts nor integers.
    """
    kind = _columns_with(table, column.name).field(column.name).type
    if not has_unambiguous_text(kind):
        message = (
            f"column {column.name!r} of table {table.location.url} is of type {kind}, but lakemark "
            "creates secondary indexes of texts and integers only; choose another column"
        )
        raise Unsupported(message)


def _check_same_column(
    table: OpenTable, properties: TableProperties, column: SecondaryColumn
) -> None:
    known = table.metadata_writer.secondary_columns(properties)
    same = next((one for one in known if one.partition == column.partition), None)
    if same is not None and same.name != column.name:
        message = (
            f"table {table.location.url} has an index {name_of(same.partition)!r} of column "
            f"{same.name!r}; drop it, or choose another name"
        )
        raise InvalidConfig(message)


def _check_expression(table: OpenTable, expression: IndexedExpression) -> None:
    """Check that a table has the column of an expression, and that lakemark computes it.

    Raises:
        InvalidConfig: there is no such column.
        Unsupported: lakemark does not compute the expression, or Apache Hudi could not read the
            index.
    """
    try:
        columns = _columns_with(table, expression.column)
        expression.function_of(columns)
        _check_readable(table, expression, columns)
    except Unsupported as error:
        message = (
            f"table {table.location.url} cannot have the index {name_of(expression.partition)!r}: "
            f"{error}"
        )
        raise Unsupported(message) from error


def _check_readable(table: OpenTable, expression: IndexedExpression, columns: pa.Schema) -> None:
    """Check that Apache Hudi can read the statistics of an expression.

    Raises:
        Unsupported: it cannot.
    """
    if not expression.is_readable_in(table.version, columns):
        kind = columns.field(expression.column).type
        result_type = expression.function_of(columns).result_type
        message = (
            f"the values of {expression.text} are of type {result_type}, but the column is of type "
            f"{kind}, and Apache Hudi cannot read such statistics in version {int(table.version)}; "
            "upgrade the table (lakemark table upgrade)"
        )
        raise Unsupported(message)


def _columns_with(table: OpenTable, column: str) -> pa.Schema:
    """Return the columns of a table, which has a column of this name.

    Raises:
        InvalidConfig: there is no such column.
    """
    schema = table.known_schema or pa.schema([])
    names = [name for name in schema.names if name not in META_COLUMNS]
    if column not in names:
        message = (
            f"table {table.location.url} has no column {column!r} that an index may have; its "
            f"columns are: {', '.join(names) or 'none yet'}"
        )
        raise InvalidConfig(message)
    return schema


def _check_same_expression(
    table: OpenTable, properties: TableProperties, expression: IndexedExpression
) -> None:
    """Check that a table has no other index of this name, and no other expression of its column.

    Apache Hudi uses an index for each condition on its column. So of several indexes, it may take
    one whose values are not those of the condition.

    Raises:
        InvalidConfig: it has.
    """
    url = table.location.url
    for one in table.metadata_writer.expressions(properties):
        name = name_of(one.partition)
        if one.partition == expression.partition and not one.has_same_values(expression):
            message = (
                f"table {url} has an index {name!r} of {one.text} ({one.kind}); drop it, or choose "
                "another name"
            )
            raise InvalidConfig(message)
        if one.column == expression.column and one.text != expression.text:
            message = (
                f"table {url} has an index {name!r} of {one.text}, and Apache Hudi uses it for "
                f"each condition on column {one.column!r}; drop it before you create an index of "
                f"{expression.text} (lakemark table index drop {url} {name} --run)"
            )
            raise InvalidConfig(message)
