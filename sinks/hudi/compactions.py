"""Compactions of one open table: what is pending, what would be planned, and doing it.

Whoever knows the table's columns does them: the pipeline's writer, or ``TableColumns``, which takes
them from the newest commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from checkpoints import codec
from table.config import keys
from table.config.merge_settings import merge_settings
from table.execution.runner import Runner
from table.hudi_table import HudiTable
from table.model.action import Action
from table.model.column_ranges import indexed_columns
from table.model.commit_metadata import CommitMetadata
from table.model.compaction_plan import CompactionPlan
from table.model.file_slice import FileSlice
from table.model.instant import Instant
from table.model.meta_columns import with_meta_columns, without_meta_columns
from table.schema import avro
from table.services.compaction import execute, request, schedule
from table.services.slice_rewrite import SliceRewriter
from table.timeline.timeline import Timeline
from table.write.file_group_write import WriteContext
from table.write.log_format import log_format_for

#: A compaction that was requested, and its plan.
Planned = tuple[Instant, CompactionPlan]

_CARRIED = (keys.SCHEMA, keys.BUCKET_COUNT, keys.BUCKET_HASH_FIELDS)


def pending_compactions(table: HudiTable) -> list[Planned]:
    """Compactions that were requested and have not completed, whoever planned them."""
    pending = table.timeline.pending(Action.COMPACTION)
    return [(i, table.store.read_compaction_plan(i.requested_at)) for i in pending]


def plan_compaction(table: HudiTable) -> CompactionPlan:
    """What ``request_compaction`` would plan as of the table's last refresh."""
    return schedule(_open_slices(table))


def request_compaction(table: HudiTable) -> Planned | None:
    """Plan the slices that have logs and no pending compaction; None when there are none."""

    def slices_at(timeline: Timeline) -> list[FileSlice]:
        table.refresh(timeline)
        return _open_slices(table)

    requested = request(table.access, slices_at)
    if requested is not None:
        table.note_request(*requested)
    return requested


def run_compaction(
    table: HudiTable,
    planned: Planned,
    context: WriteContext,
    runner: Runner,
    own_metadata: Mapping[str, str],
) -> tuple[Instant, CommitMetadata]:
    """Rewrite a plan's slices, publish them, and carry the checkpoint on.

    Args:
        table: the open table.
        planned: the compaction.
        context: of its instant.
        runner: where the work is done.
        own_metadata: what the commit says beside the checkpoint.
    """
    newest = table.newest_metadata()
    carried = codec.carried_forward(newest.extra_metadata) if newest else {}
    instant, metadata, timeline = execute(
        table.access, *planned, SliceRewriter(context), runner, {**own_metadata, **carried}
    )
    table.note_commit(instant, metadata, timeline)
    return instant, metadata


def write_context(
    table: HudiTable,
    instant: str,
    schema: pa.Schema,
    avro_schema_text: str,
    log_format: str | None = None,
    merger_class: str | None = None,
) -> WriteContext:
    """What workers need to write in the name of an instant.

    Args:
        table: the open table.
        instant: its requested time.
        schema: the written columns, without meta columns.
        avro_schema_text: the same with them, as files keep it.
        log_format: of log blocks; None leaves it to ``log_format_for``.
        merger_class: of a table of mode ``CUSTOM``.
    """
    merge = replace(merge_settings(table.properties), merger_class=merger_class)
    columns = with_meta_columns(schema)
    return WriteContext(
        location=table.location,
        instant=instant,
        table_name=table.properties.table_name,
        table_type=table.properties.table_type,
        schema=columns,
        avro_schema_text=avro_schema_text,
        merge=merge,
        log_format=log_format or log_format_for(schema, merge.ordering_fields),
        indexed=indexed_columns(columns) if table.properties.metadata_partitions else (),
    ).sharing(table.storage)


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A table's own columns and bucket count, as its newest commit has them.

    Attributes:
        schema: without meta columns.
        own_metadata: what a compaction's commit takes over from the newest.
    """

    schema: pa.Schema
    own_metadata: Mapping[str, str]

    @classmethod
    def of(cls, table: HudiTable) -> TableColumns:
        """Those of a table that has a commit."""
        newest, schema = table.newest_metadata(), table.schema
        assert newest is not None and schema is not None
        known = newest.extra_metadata
        carried = {key: known[key] for key in _CARRIED if key in known}
        return cls(without_meta_columns(schema), carried)

    def context(self, table: HudiTable, instant: str, merger_class: str | None) -> WriteContext:
        """What workers need to write all columns in the name of an instant."""
        name = table.properties.table_name
        text = json.dumps(avro.to_avro(with_meta_columns(self.schema), name))
        return write_context(table, instant, self.schema, text, merger_class=merger_class)


def _open_slices(table: HudiTable) -> list[FileSlice]:
    """Slices that a plan may take: those of groups that no pending service has."""
    view = table.view()
    taken = view.compactions.keys() | view.clusterings.keys()
    return [s for s in view.slices_for_writing() if s.group not in taken]
