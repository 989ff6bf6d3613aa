"""``lakemark table delete-partitions``: deletes all rows of some partitions."""

from __future__ import annotations

import argparse

from lakemark.operations.open_table import OpenTable
from lakemark.operations.partition_deletion import (
    ChoosePartitions,
    PartitionContents,
    match_partitions,
    plan_deletion,
)
from lakemark.operations.write import RowWriter
from lakemark.transaction.rollback_checks import check_no_restore
from streamer.commands.service_table import open_for_service, show_work
from streamer.commands.table import Facts


def execute(arguments: argparse.Namespace) -> int:
    """Print the partitions that match the patterns, or delete them.

    Raises:
        InvalidConfig: the table is not partitioned, or has no such partition.
        HudiError: the table cannot be read or written.
    """
    table = open_for_service(arguments, arguments.merger)
    delete_chosen(table, match_partitions(table, arguments.patterns), arguments)
    return 0


def delete_chosen(
    table: OpenTable, choose: ChoosePartitions, arguments: argparse.Namespace
) -> None:
    """Print the partitions that a function chooses, or delete them.

    Raises:
        HudiError: the table cannot be read or written.
    """
    check_no_restore(table.timeline)
    if arguments.step == "run":
        deletion = RowWriter(table).delete_partitions(choose)
    else:
        deletion = plan_deletion(table, choose)
    rows = [_shown(deletion.instant, one) for one in deletion.partitions]
    if not arguments.json:
        rows = [
            {**row, "rows": _rows_text(one)}
            for row, one in zip(rows, deletion.partitions, strict=True)
        ]
    show_work(rows, arguments, "no partition with rows is to be deleted")


def _shown(instant: str | None, partition: PartitionContents) -> Facts:
    return {
        "instant": instant,
        "partition": partition.path,
        "file groups": partition.file_groups,
        "files": partition.files,
        "bytes": partition.size_bytes,
        "rows": partition.rows,
    }


def _rows_text(partition: PartitionContents) -> int | str:
    """Return the number of rows for people, or why it is not known without reading files."""
    if partition.rows is not None:
        return partition.rows
    return "not known (logs)" if partition.log_files else "not known (commit archived)"
