"""The indexes of the metadata table of an open table: their names, and which ones it has.

Users name a secondary index or an expression index without the prefix of its partition, and every
other index by its partition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig
from lakemark.metadata.expressions.expression_text import print_expression
from lakemark.metadata.index_definition import IndexDefinition, read_definitions
from lakemark.metadata.index_sources import SINGLE
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.operations.open_table import OpenTable
from lakemark.storage.properties_file import read_properties

_PREFIX = PartitionKind.SECONDARY_INDEX.stored_name
_EXPRESSION_PREFIX = PartitionKind.EXPRESSION_INDEX.stored_name

#: The name of a secondary or expression index, as Apache Hudi's SQL accepts it without quotes.
_NAME = re.compile(r"[a-z0-9_]+")

#: Partitions that every new metadata table of lakemark has, so that they are not dropped alone.
ALWAYS = ("files", "column_stats", "partition_stats")

#: The names of indexes that a table has at most once.
_SINGLE = tuple(index.partition for index in SINGLE)


class IndexState(StrEnum):
    """Whether queries may use an index.

    Attributes:
        COMPLETE: queries use the index, and each commit updates it.
        BUILDING: a process builds the index, or died while it did.
        DROPPED: a rollback, a restore or a change of the table's version has dropped the metadata
            table, and the next start of a writer builds the index again.
    """

    COMPLETE = "complete"
    BUILDING = "building"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class TableIndex:
    """An index of a table.

    Attributes:
        name: the name with which the index is created and dropped.
        kind: the type of the index, such as ``record_index`` or ``secondary_index``. An expression
            index is of ``column_stats`` or ``bloom_filters``.
        columns: the indexed columns; empty for indexes of all keys or files.
        expression: the expression of an expression index, such as ``lower(name)``; otherwise empty.
        state: whether queries may use the index.
        partition: the partition of the metadata table that contains the index.
        is_partitioned: whether the keys of a record index are unique only within a partition.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    expression: str
    state: IndexState
    partition: str
    is_partitioned: bool = False


def list_indexes(table: OpenTable) -> list[TableIndex]:
    """Return the indexes of a table, sorted by name."""
    properties = read_properties(table.storage)
    definitions = read_definitions(table.storage)
    building = {
        partition
        for _, plan in table.store.pending_indexing(table.store.load())
        for partition in plan.partitions
    }
    states = dict(_states(properties, building))
    found = (_index(one, state, definitions.get(one)) for one, state in states.items())
    return sorted(found, key=lambda one: one.name)


def partition_of(name: str, column: str | None = None) -> str:
    """Return the partition of the metadata table that a new index has.

    Args:
        name: the name of the index.
        column: the column of a secondary index.

    Raises:
        InvalidConfig: the name is invalid, or names another kind of index.
    """
    if column is None:
        if name in _SINGLE:
            return name
        message = (
            f"there is no index {name!r}; create {' or '.join(_SINGLE)}, or name the column of a "
            "secondary index"
        )
        raise InvalidConfig(message)
    _check_name(name, "a secondary index")
    return f"{_PREFIX}{name}"


def expression_partition_of(name: str) -> str:
    """Return the partition of the metadata table that a new expression index has.

    Raises:
        InvalidConfig: the name is invalid, or names another kind of index.
    """
    _check_name(name, "an expression index")
    return f"{_EXPRESSION_PREFIX}{name}"


def _check_name(name: str, of: str) -> None:
    prefixes = (_PREFIX, _EXPRESSION_PREFIX)
    is_taken = name in (*_SINGLE, ALWAYS[0]) or name.startswith(prefixes)
    if not _NAME.fullmatch(name) or is_taken:
        message = (
            f"the name of {of} is {name!r}; use lower-case letters, digits and _, but not "
            f"{', '.join((*_SINGLE, ALWAYS[0]))}, nor a name that begins with "
            f"{' or '.join(prefixes)}"
        )
        raise InvalidConfig(message)


def name_of(partition: str) -> str:
    """Return the name of the index that a partition of the metadata table contains."""
    return partition.removeprefix(_PREFIX).removeprefix(_EXPRESSION_PREFIX)


def _states(properties: TableProperties, building: set[str]) -> Iterator[tuple[str, IndexState]]:
    """Yield the partitions of all indexes; a later state of a partition replaces an earlier one."""
    for partition in properties.metadata_indexes:
        yield partition, IndexState.DROPPED
    for partition in (*building, *properties.inflight_metadata_partitions):
        yield partition, IndexState.BUILDING
    for partition in properties.stored_metadata_partitions:
        if partition not in ALWAYS:
            yield partition, IndexState.COMPLETE


def _index(partition: str, state: IndexState, definition: IndexDefinition | None) -> TableIndex:
    kind = definition.kind if definition is not None else ""
    if not kind:
        kind = next((one for one in _KINDS if partition.startswith(one)), partition).rstrip("_")
    if definition is None:
        return TableIndex(name_of(partition), kind, (), "", state, partition)
    columns, partitioned = definition.source_fields, definition.is_partitioned
    expression = _expression_of(definition)
    return TableIndex(name_of(partition), kind, columns, expression, state, partition, partitioned)


def _expression_of(definition: IndexDefinition) -> str:
    if not definition.partition.startswith(_EXPRESSION_PREFIX):
        return ""
    column = ", ".join(definition.source_fields)
    return print_expression(definition.function, column, definition.options)


_KINDS = tuple(kind.stored_name for kind in PartitionKind)
