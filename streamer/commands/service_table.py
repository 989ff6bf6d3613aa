"""What the commands that change a table share: the table they may change, and where work runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from streamer.commands.location import open_named_table
from streamer.commands.table import Facts
from streamer.table_setup import check_kept
from table.config.table_spec import check_writable
from table.execution.runner import LocalRunner, Runner
from table.hudi_table import HudiTable
from table.model.rollback import RollbackPlan
from table.services.cleaning_plan import CleaningPolicy, Retention
from table.timeline.timeline import Timeline
from table.transaction.instant_files import names_of
from table.view.file_system_view import FileSystemView

_COMMITS_RETAINED = 10


def open_for_service(arguments: argparse.Namespace, mergers: Sequence[str] = ()) -> HudiTable:
    """The named table, if this project keeps such tables in shape.

    Raises:
        TableNotFound: no table lies there.
        Unsupported: a table that this project does not write.
    """
    table = open_named_table(arguments.table, arguments.storage, mergers)
    check_kept(table)
    return table


def open_whatever_indexes(arguments: argparse.Namespace) -> HudiTable:
    """The same for what leaves a metadata table alone, or drops it."""
    table = open_named_table(arguments.table, arguments.storage)
    check_writable(table.properties.without_metadata_table(), table.location.url)
    return table


def chosen_runner(arguments: argparse.Namespace) -> Runner:
    """Where ``--runner`` says that the work is done.

    Raises:
        SessionFailed: Spark did not start.
    """
    if arguments.runner == "local":
        return LocalRunner()
    # Only here: without it, no command but this needs Spark.
    from streamer.session import plain_session
    from table.spark.runner import SparkRunner

    return SparkRunner(plain_session("lakemark table service"))


def view_at(table: HudiTable, timeline: Timeline) -> FileSystemView:
    """The latest state as of a timeline that was just loaded, for what is planned from it."""
    table.refresh(timeline)
    return table.view()


def cleaning_policy(arguments: argparse.Namespace) -> CleaningPolicy:
    """What ``--retain-…`` says; ten commits without."""
    if arguments.retain_hours:
        return CleaningPolicy(Retention.HOURS, hours=arguments.retain_hours)
    if arguments.retain_versions:
        return CleaningPolicy(Retention.FILE_VERSIONS, file_versions=arguments.retain_versions)
    return CleaningPolicy(commits=arguments.retain_commits or _COMMITS_RETAINED)


def file_rows(undone: RollbackPlan) -> list[Facts]:
    """One row for each file of an instant that is undone; one without a file when it has none."""
    named = [
        (partition, name) for partition, names in names_of(undone.files).items() for name in names
    ]
    return [
        {
            "instant": undone.instant,
            "action": str(undone.action),
            "partition": partition,
            "file": name,
        }
        for partition, name in named or [("", "")]
    ]
