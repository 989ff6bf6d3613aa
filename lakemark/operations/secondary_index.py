"""Creates and drops the secondary indexes of an open table."""

from __future__ import annotations

import re

import pyarrow as pa

from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.metadata.index_definition import define_secondary_index, remove_definitions
from lakemark.metadata.partition_kind import PartitionKind, has_record_index
from lakemark.metadata.secondary_columns import SecondaryColumn, check_types
from lakemark.metadata.secondary_index import index_version
from lakemark.model.format_version import FormatVersion
from lakemark.operations.metadata_table import build_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.storage.properties_file import read_properties
from lakemark.transaction.table_context import LOCK_WAIT_S

#: The name of an index, as Apache Hudi's SQL accepts it without quotes.
_INDEX_NAME = re.compile(r"[a-z0-9_]+")


def create_secondary_index(table: OpenTable, name: str, column: str) -> str:
    """Create a secondary index of a column. The metadata table is built again, with this index.

    No writer of Apache Hudi may write meanwhile. A commit of lakemark that began before is written
    again.

    Args:
        table: the open table, whose metadata table has a record index.
        name: name of the index: letters, digits and ``_``.
        column: the column, which contains texts or integers.

    Returns:
        The partition of the metadata table that contains the index.

    Raises:
        InvalidConfig: the name is invalid; or the table has such an index, but of another column.
        Unsupported: the table has no record index, or has version 6; or lakemark updates no index
            of such a column.
        Refused: the index would be too large.
    """
    partition = f"{PartitionKind.SECONDARY_INDEX.stored_name}{name}"
    if not _INDEX_NAME.fullmatch(name):
        message = f"the name of an index is {name!r}; use letters, digits and _"
        raise InvalidConfig(message)
    new = SecondaryColumn(partition, column, index_version(table.version))
    with table.context.lock.hold(LOCK_WAIT_S) as lease:
        timeline, stored = table.store.load(), read_properties(table.storage)
        _check_may_have_index(table, stored)
        known = table.metadata_writer.secondary_columns(stored)
        same = next((one for one in known if one.partition == partition), None)
        if same is not None and same.name != column:
            message = (
                f"table {table.location.url} has an index {name!r} of column {same.name!r}; drop "
                "it, or choose another name"
            )
            raise InvalidConfig(message)
        table.refresh(timeline)
        check_types([new], table.known_schema or pa.schema([]), table.location.url)
        if same is None:
            lease.check()
            define_secondary_index(table.storage, partition, column, new.version, lease.check)
            indexes = [*stored.metadata_indexes, partition]
            build_metadata_table(table, timeline, lease.check, indexes)
    return partition


def drop_secondary_index(table: OpenTable, name: str) -> None:
    """Drop a secondary index. The metadata table is built again, without this index.

    Args:
        table: the open table.
        name: name of the index.

    Raises:
        InvalidConfig: there is no such index.
    """
    partition = f"{PartitionKind.SECONDARY_INDEX.stored_name}{name}"
    with table.context.lock.hold(LOCK_WAIT_S) as lease:
        stored = read_properties(table.storage)
        kept = [one for one in stored.metadata_indexes if one != partition]
        if len(kept) == len(stored.metadata_indexes):
            message = f"table {table.location.url} has no secondary index {name!r}"
            raise InvalidConfig(message)
        build_metadata_table(table, table.store.load(), lease.check, kept)
        remove_definitions(table.storage, [partition], lease.check)


def _check_may_have_index(table: OpenTable, properties: TableProperties) -> None:
    """Check that a table may have a secondary index.

    Raises:
        Unsupported: the table has no record index, or has version 6.
    """
    url = table.location.url
    if not table.version >= FormatVersion.V8:
        message = (
            f"table {url} has version {int(table.version)}, in which tables have no secondary "
            "index; upgrade the table (lakemark table upgrade)"
        )
        raise Unsupported(message)
    if not has_record_index(properties):
        message = f"table {url} has no record index, which a secondary index needs; create it first"
        raise Unsupported(message)
