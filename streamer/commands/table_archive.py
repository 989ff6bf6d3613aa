"""``lakemark table archive``: moves old instants to the archived timeline."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from lakemark.model.instant import Instant
from lakemark.operations.archive import archive, explain_no_archival, plan_archival
from lakemark.operations.metadata_table import compact_and_maintain_metadata_table
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.metadata_table_services import MetadataPolicies
from lakemark.transaction.rollback_checks import check_no_restore
from streamer.commands.service_table import (
    cleaning_policy,
    open_for_service,
    pipeline_of,
    show_work,
)
from streamer.commands.table import Facts
from streamer.config.archival import ArchivalConfig
from streamer.config.compaction import CompactionConfig


def execute(arguments: argparse.Namespace) -> int:
    """Print the instants that would be archived, or archive them.

    Raises:
        InvalidConfig: ``--max-commits`` is not more than ``--min-commits``, or ``--files-to-merge``
            is less than 2.
        HudiError: the table cannot be read or written.
    """
    table, cleaning = open_for_service(arguments), cleaning_policy(arguments)
    policy = _policy(arguments)
    check_no_restore(table.timeline)
    if arguments.step == "run":
        done = archive(table, policy, cleaning)
        instants = done.instants if done else ()
        maintained = compact_and_maintain_metadata_table(
            table, MetadataPolicies.for_data_table(cleaning, policy)
        )
        rows = [*map(_row, instants), *_metadata_rows(maintained.archived if maintained else ())]
    else:
        rows = [*map(_row, plan_archival(table, policy, cleaning))]
    reason = "" if rows else f": {explain_no_archival(table, policy, cleaning)}"
    show_work(rows, arguments, f"nothing to archive{reason}")
    return 0


def _policy(arguments: argparse.Namespace) -> ArchivalPolicy:
    config = pipeline_of(arguments)
    configured = ArchivalConfig() if config is None else config.archival
    compaction = CompactionConfig() if config is None else config.compaction
    return ArchivalPolicy(
        arguments.min_commits or configured.min_commits,
        arguments.max_commits or configured.max_commits,
        compaction.compaction_policy().after_commits,
        arguments.files_to_merge or configured.files_to_merge,
    )


def _row(instant: Instant) -> Facts:
    return {
        "instant": instant.requested_at,
        "action": instant.action.value,
        "completed": instant.completed_at,
    }


def _metadata_rows(instants: Iterable[Instant]) -> list[Facts]:
    """Return one row for each archived instant of the metadata table."""
    return [{**_row(one), "action": f"metadata {one.action.value}"} for one in instants]
