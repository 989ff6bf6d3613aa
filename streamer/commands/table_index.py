"""``lakemark table index``: creates, drops and lists indexes, and chooses their columns."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from lakemark.metadata.partition_kind import PartitionKind
from lakemark.operations.create_checks import column_names
from lakemark.operations.create_index import create_index, plan_index
from lakemark.operations.drop_index import drop_index, find_droppable
from lakemark.operations.open_table import OpenTable
from lakemark.operations.statistics_columns import (
    choose_statistics_columns,
    plan_statistics_columns,
)
from lakemark.operations.table_indexes import TableIndex, list_indexes
from streamer.commands.location import open_named_table
from streamer.commands.service_table import (
    open_for_service,
    open_ignoring_metadata_table,
    show_work,
)
from streamer.commands.table import Facts, show_rows

#: What a pipeline needs when its partitioned table gets a record index of the whole table.
_MOVES = (
    "with the index, each record key has one row in the whole table; a pipeline of the table "
    "needs table.partition_change: move at its next start"
)


def execute(arguments: argparse.Namespace) -> int:
    """Print or execute a change of the indexes, or list them.

    Raises:
        InvalidConfig: there is no such index, or its name is invalid; or there is no such column.
        Unsupported: the table may not have such an index.
        Refused: another process builds the index, or another index needs it.
    """
    if arguments.change == "list":
        table = open_named_table(arguments.table, arguments.storage)
        rows = [_row(one) for one in list_indexes(table)]
        show_rows(rows, Console(), arguments.json, "no indexes")
    elif arguments.change == "create":
        table = open_for_service(arguments, arguments.merger)
        rows = _created(table, arguments)
        show_work(rows, arguments, f"the table has the index {arguments.name}")
        if rows and _makes_keys_global(table, arguments):
            print(_MOVES, file=sys.stderr)
    elif arguments.change == "statistics":
        rows = _statistics(open_for_service(arguments, arguments.merger), arguments)
        show_work(rows, arguments, "the table has statistics of these columns")
    else:
        rows = _dropped(open_ignoring_metadata_table(arguments), arguments)
        show_work(rows, arguments, "no index")
    return 0


def _created(table: OpenTable, arguments: argparse.Namespace) -> list[Facts]:
    name, column, expression = arguments.name, arguments.column, arguments.expression
    kind, partitioned = arguments.kind, arguments.partitioned
    partition = plan_index(
        table, name, column, expression=expression, kind=kind, partitioned=partitioned
    )
    if partition is None:
        return []
    if arguments.step == "plan":
        of = {"column": column} if expression is None else {"expression": expression, "kind": kind}
        return [{"index": name, **of, "partition": partition}]
    create_index(table, name, column, expression=expression, kind=kind, partitioned=partitioned)
    return [_row(one) for one in list_indexes(table) if one.partition == partition]


def _statistics(table: OpenTable, arguments: argparse.Namespace) -> list[Facts]:
    columns = None if arguments.default else column_names(arguments.columns, "--column")
    if not plan_statistics_columns(table, columns):
        return []
    if arguments.step == "run":
        choose_statistics_columns(table, columns)
    return [{"statistics": ", ".join(columns) if columns is not None else "default"}]


def _makes_keys_global(table: OpenTable, arguments: argparse.Namespace) -> bool:
    properties = table.properties
    is_decided = set(properties.partition_fields) <= set(properties.record_key_fields)
    return arguments.name == PartitionKind.RECORD_INDEX.stored_name and not (
        arguments.partitioned or is_decided
    )


def _dropped(table: OpenTable, arguments: argparse.Namespace) -> list[Facts]:
    found = find_droppable(table, arguments.name)
    if arguments.step == "run":
        drop_index(table, arguments.name)
    return [_row(found)]


def _row(index: TableIndex) -> Facts:
    return {
        "index": index.name,
        "kind": f"{index.kind} (partitioned)" if index.is_partitioned else index.kind,
        "columns": ", ".join(index.columns),
        "expression": index.expression,
        "state": index.state.value,
        "partition": index.partition,
    }
