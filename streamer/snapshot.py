"""Finds whether a run reads the snapshot of its pipeline, and checks it before anything starts."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoints.lookup import find_progress
from checkpoints.snapshot_position import SnapshotPosition
from lakemark.operations.open_table import OpenTable
from streamer.checks.tables import check_rows
from streamer.config.errors import ConfigError, Problem
from streamer.config.pipeline import PipelineConfig
from streamer.prepared_sink import PreparedSink, prepare_sink


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """What the next run of a pipeline reads of its snapshot.

    Attributes:
        is_due: whether the next run reads the snapshot, or the rest of it, before the topic.
        position: how far it was read; None if it was not begun, or was read completely.
    """

    is_due: bool
    position: SnapshotPosition | None = None


def find_state(config: PipelineConfig) -> SnapshotState:
    """Find what the next run reads of the snapshot.

    Raises:
        DamagedCheckpoint: the checkpoint of the table cannot be read.
        HudiError: the table cannot be read.
    """
    if config.snapshot is None:
        return SnapshotState(is_due=False)
    return state_in(config, check_rows(config))


def state_in(config: PipelineConfig, table: OpenTable | None) -> SnapshotState:
    """Return what the next run reads of the snapshot of a pipeline that has one.

    Args:
        config: the configuration of the pipeline.
        table: the table of the rows; None if it does not exist yet.

    Raises:
        DamagedCheckpoint: the checkpoint of the table cannot be read.
    """
    if table is None:
        return SnapshotState(is_due=True)
    progress = find_progress(table, table.timeline, config.source.checkpoint_id)
    checkpoint = None if progress is None else progress.checkpoint
    if isinstance(checkpoint, SnapshotPosition):
        return SnapshotState(is_due=True, position=checkpoint)
    return SnapshotState(is_due=checkpoint is None)


def check_columns(config: PipelineConfig, of_snapshot: PreparedSink) -> None:
    """Check that the records of the topic fit the columns that the snapshot gives a new table.

    Columns that only one of them has are columns of the table, and null in the other's rows.

    Args:
        config: the configuration of the pipeline.
        of_snapshot: the sink of the pipeline that reads the snapshot.

    Raises:
        ConfigError: a column has two types.
        HudiError: the settings of the topic do not fit the table.
    """
    if config.decode.declared() is None:
        return  # the records of the topic get the columns of the table
    found = of_snapshot.converter.table_schema
    wanted = prepare_sink(config, None).converter.table_schema
    problems = [
        Problem(
            "snapshot.decode.schema",
            f"{one.name!r} is {found.field(one.name).type} in the snapshot, but {one.type} in the "
            "topic; declare the same type",
        )
        for one in wanted
        if one.name in found.names and found.field(one.name).type != one.type
    ]
    if problems:
        raise ConfigError(problems)
