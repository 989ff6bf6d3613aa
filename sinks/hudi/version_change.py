"""Takes an open table to another version: what is unfinished is ended first, then it is changed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sinks.hudi.compactions import (
    Compaction,
    Planned,
    pending_compactions,
    request_compaction,
)
from table.execution.runner import Runner
from table.hudi_table import HudiTable
from table.model.action import COMMITS
from table.model.compaction_plan import CompactionOperation
from table.model.format_version import FormatVersion
from table.services.compaction import schedule
from table.transaction.rollback import recover
from table.upgrade.change import VersionChange, change_version, needs_compaction, plan_change


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What is done on the way to another version.

    Attributes:
        rolled_back: instants of dead writers that are undone.
        compacted: slices whose logs are merged.
        change: of the table itself; a compaction adds an instant to its timeline.
    """

    rolled_back: tuple[str, ...]
    compacted: tuple[CompactionOperation, ...]
    change: VersionChange


def plan_version(table: HudiTable, version: FormatVersion) -> PlannedChange:
    """What ``take_to_version`` would do now. Errors as for ``plan_change``."""
    change = plan_change(table.access, version)
    pending = tuple(i.requested_at for i in table.timeline.pending(*COMMITS))
    plans = [plan for _, plan in pending_compactions(table)]
    if _merges(table, version):
        # What was written beside a pending compaction has to be merged once that is done.
        plans.append(schedule(table.view().slices_for_writing()))
    operations = tuple(one for plan in plans for one in plan.operations)
    return PlannedChange(pending, operations, change)


def take_to_version(
    table: HudiTable, version: FormatVersion, runner: Runner, merger_class: str | None = None
) -> PlannedChange:
    """Undo what dead writers left, do compactions that are pending, and change the table.

    All logs are merged where the other version would read them otherwise.

    A metadata table is made anew in the new version.

    Raises:
        WriterAlive: another writer is at work.
        HudiError: as for ``change_version``; or a compaction failed.
    """
    plan_change(table.access, version)
    rolled_back = tuple(recover(table.access))
    table.refresh()
    operations: list[CompactionOperation] = []
    for planned in pending_compactions(table):
        operations += _compact(table, planned, runner, merger_class)
    requested = request_compaction(table) if _merges(table, version) else None
    if requested is not None:
        operations += _compact(table, requested, runner, merger_class)
    change = change_version(table.access, version)
    if change.metadata_partitions and not change.is_none:
        changed = HudiTable(table.storage, change.after, table.mergers)
        agreed = table.access
        changed.access = replace(changed.access, lock=agreed.lock, sharing=agreed.sharing)
        changed.rebuild_metadata_table()
    return PlannedChange(rolled_back, tuple(operations), change)


def _merges(table: HudiTable, version: FormatVersion) -> bool:
    return table.properties.is_merge_on_read and needs_compaction(table.version, version)


def _compact(
    table: HudiTable, planned: Planned, runner: Runner, merger_class: str | None
) -> tuple[CompactionOperation, ...]:
    Compaction.begin(table, planned, merger_class).run(runner)
    return planned[1].operations
