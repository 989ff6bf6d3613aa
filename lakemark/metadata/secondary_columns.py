"""The columns of a table that have a secondary index, and which of them lakemark updates.

The text of a value decides its keys in the index, so every writer must write the same text.
lakemark updates the indexes of texts and integers, whose text is unambiguous. Apache Hudi also
indexes other types. It writes the text of a number or time as Java prints it, which depends on the
version of Java and on the reader of Apache Hudi.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakemark.errors import Unsupported
from lakemark.metadata.index_definition import DEFINITIONS_PATH, IndexDefinition
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.secondary_index import hashes_values

#: What a user can do about an index that lakemark does not update.
_REMEDY = "write with Apache Hudi, or drop the index (lakemark table index drop)"


@dataclass(frozen=True, slots=True)
class SecondaryColumn:
    """A column with a secondary index.

    Attributes:
        partition: the partition ``secondary_index_<name>`` of the metadata table.
        name: the column.
        version: format version of the index, ``V1`` or ``V2``.
    """

    partition: str
    name: str
    version: str

    @property
    def hashes_values(self) -> bool:
        """See ``secondary_index.hashes_values``."""
        return hashes_values(self.version)


def secondary_columns(
    partitions: Iterable[str], definitions: Mapping[str, IndexDefinition], url: str
) -> tuple[SecondaryColumn, ...]:
    """Return the columns that have a secondary index, sorted by partition.

    Args:
        partitions: names of partitions of the metadata table, of any kind.
        definitions: the definitions of the table's indexes.
        url: URL of the table, for errors.

    Raises:
        Unsupported: the table has no definition of an index, or the index is of several columns or
            of a field inside a struct.
    """
    named = sorted(one for one in partitions if is_secondary_index(one))
    found = [_column_of(one, definitions.get(one)) for one in named]
    for partition, column in zip(named, found, strict=True):
        if column is None:
            raise _is_not_updated(partition, definitions.get(partition), url)
    return tuple(column for column in found if column is not None)


def readable_columns(
    partitions: Iterable[str], definitions: Mapping[str, IndexDefinition], schema: pa.Schema
) -> tuple[SecondaryColumn, ...]:
    """Return the columns with an index whose values lakemark knows how to look up.

    Args:
        partitions: names of partitions of the metadata table, of any kind.
        definitions: the definitions of the table's indexes.
        schema: the columns of the table.
    """
    named = sorted(one for one in partitions if is_secondary_index(one))
    found = (_column_of(one, definitions.get(one)) for one in named)
    return tuple(
        column
        for column in found
        if column is not None
        and column.name in schema.names
        and has_unambiguous_text(schema.field(column.name).type)
    )


def is_secondary_index(partition: str) -> bool:
    """Return whether a partition of the metadata table is a secondary index, by its name."""
    return partition.startswith(PartitionKind.SECONDARY_INDEX.stored_name)


def check_types(columns: Iterable[SecondaryColumn], schema: pa.Schema, url: str) -> None:
    """Check that lakemark writes the values of these columns to a secondary index.

    Args:
        columns: the columns with a secondary index.
        schema: the columns of the table.
        url: URL of the table, for errors.

    Raises:
        Unsupported: a column is not in the table, or its values are neither texts nor integers.
    """
    for column in columns:
        kind = schema.field(column.name).type if column.name in schema.names else None
        if kind is not None and has_unambiguous_text(kind):
            continue
        found = "which the table does not have" if kind is None else f"whose type is {kind}"
        message = (
            f"{column.partition} of table {url} is an index of column {column.name!r}, {found}, "
            f"but lakemark updates only indexes of texts and integers; {_REMEDY}"
        )
        raise Unsupported(message)


def has_unambiguous_text(kind: pa.DataType) -> bool:
    """Return whether all writers write the same text of a value of this type."""
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_int32, pa.types.is_int64)
    return any(check(kind) for check in checks)


def _column_of(partition: str, definition: IndexDefinition | None) -> SecondaryColumn | None:
    """Return the column of an index; None if the index is not of one top-level column."""
    fields = definition.source_fields if definition else ()
    if definition is None or len(fields) != 1 or "." in fields[0]:
        return None
    return SecondaryColumn(partition, fields[0], definition.version)


def _is_not_updated(partition: str, definition: IndexDefinition | None, url: str) -> Unsupported:
    fields = definition.source_fields if definition else ()
    found = f"of {', '.join(fields)}" if fields else f"without a column in {DEFINITIONS_PATH}"
    message = (
        f"table {url} has an index {partition} {found}, but lakemark updates only secondary "
        f"indexes of one column; {_REMEDY}"
    )
    return Unsupported(message)
