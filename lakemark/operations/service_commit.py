"""Publishes the commit of a compaction or a clustering of an open table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable
from lakemark.services.plan_execution import PlanExecution
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.carried_metadata import carry_progress, carry_table_facts

#: Returns the extra metadata of a commit except checkpoints. It is called under the lock, after the
#: table was refreshed.
TableFacts: TypeAlias = Callable[[], Mapping[str, str]]


def publish_service(
    table: OpenTable,
    execution: PlanExecution[Any],
    metadata: CommitMetadata,
    table_facts: TableFacts | None,
    prepare: Callable[[], None] = lambda: None,
) -> tuple[Instant, CommitMetadata]:
    """Make the new base files visible, and copy the streamers' checkpoints to the commit.

    Args:
        table: the open table.
        execution: the execution of the plan, whose files are written.
        metadata: the metadata of the commit, without extra metadata.
        table_facts: see ``TableFacts``; None for the schema and the bucket settings of the newest
            commit.
        prepare: called under the lock, after the table was refreshed; an error prevents the commit.

    Raises:
        AttemptLost: another writer rolled the attempt back; nothing was published.
        LockTimeout: another writer held the lock for too long; call this function again.
    """

    def refresh_and_prepare(timeline: Timeline) -> None:
        table.refresh(timeline)
        prepare()

    def extra_metadata() -> dict[str, str]:
        newest = table.newest_metadata()
        extra = newest.extra_metadata if newest else {}
        facts = carry_table_facts(extra) if table_facts is None else table_facts()
        return {**facts, **carry_progress(extra)}

    instant, metadata, timeline = execution.complete(metadata, refresh_and_prepare, extra_metadata)
    table.snapshot.carry_commit(instant, metadata, timeline)
    return instant, metadata
