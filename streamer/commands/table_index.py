"""``lakemark table index``: creates, drops and lists the indexes of a table."""

from __future__ import annotations

import argparse

from rich.console import Console

from lakemark.operations.create_index import create_index, plan_index
from lakemark.operations.drop_index import drop_index, find_droppable
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_indexes import TableIndex, list_indexes
from streamer.commands.location import open_named_table
from streamer.commands.service_table import (
    open_for_service,
    open_ignoring_metadata_table,
    show_work,
)
from streamer.commands.table import Facts, show_rows


def execute(arguments: argparse.Namespace) -> int:
    """Print or execute a change of the indexes, or list them.

    Raises:
        InvalidConfig: there is no such index, or its name is invalid.
        Unsupported: the table may not have such an index.
        Refused: another process builds the index, or another index needs it.
    """
    if arguments.change == "list":
        table = open_named_table(arguments.table, arguments.storage)
        rows = [_row(one) for one in list_indexes(table)]
        show_rows(rows, Console(), arguments.json, "no indexes")
    elif arguments.change == "create":
        rows = _created(open_for_service(arguments, arguments.merger), arguments)
        show_work(rows, arguments, f"the table has the index {arguments.name}")
    else:
        rows = _dropped(open_ignoring_metadata_table(arguments), arguments)
        show_work(rows, arguments, "no index")
    return 0


def _created(table: OpenTable, arguments: argparse.Namespace) -> list[Facts]:
    partition = plan_index(table, arguments.name, arguments.column)
    if partition is None:
        return []
    if arguments.step == "plan":
        return [{"index": arguments.name, "column": arguments.column, "partition": partition}]
    create_index(table, arguments.name, arguments.column)
    return [_row(one) for one in list_indexes(table) if one.partition == partition]


def _dropped(table: OpenTable, arguments: argparse.Namespace) -> list[Facts]:
    found = find_droppable(table, arguments.name)
    if arguments.step == "run":
        drop_index(table, arguments.name)
    return [_row(found)]


def _row(index: TableIndex) -> Facts:
    return {
        "index": index.name,
        "kind": index.kind,
        "columns": ", ".join(index.columns),
        "state": index.state.value,
        "partition": index.partition,
    }
