"""Builds the replay of a pipeline's dead letters from the pipeline's configuration."""

from __future__ import annotations

import pyarrow as pa

from lakemark.config.merge_settings import MergeSettings, merge_settings
from lakemark.config.table_properties import MergeMode
from lakemark.errors import InvalidConfig, Refused, TableNotFound
from lakemark.model.action import COMMITS
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation
from lakemark.storage.probe import check_conditional_puts
from lakemark.timeline.locks.open_lock import LockProviderName
from lakemark.transaction.heartbeat import emits_heartbeats
from sinks.dead_letters import is_dead_letter_table
from sinks.hudi.replay import LetterReplay
from streamer.config.pipeline import PipelineConfig
from streamer.pipeline import open_writers
from streamer.pipeline_hooks import PipelineHooks
from streamer.prepared_sink import prepare_sink
from streamer.table_setup import dead_letters_location


def open_replay(
    config: PipelineConfig,
    *,
    overwrites_newer: bool = False,
    hooks: PipelineHooks | None = None,
) -> LetterReplay:
    """Open the tables of a pipeline to replay its dead letters. Nothing is changed.

    A replay is one of several writers, so that it can run while the pipeline runs. It keeps the
    metadata tables that exist, and builds no others, whatever ``table.metadata_table`` says.

    Args:
        config: the configuration of the pipeline.
        overwrites_newer: whether a replayed record without an ordering value may overwrite or
            delete a row that was written later.
        hooks: learn the table; its commits record that they are announced. None to announce none.

    Raises:
        Refused: there is nothing to replay; or a replay could overwrite newer rows; or the pipeline
            may be writing and does not expect other writers.
        InvalidConfig: dead letters are disabled, or the lock does not exclude other processes.
        HudiError: a setting or a table is not suitable.
    """
    if not config.dead_letters.enabled:
        message = "dead_letters.enabled is false, so the pipeline has no dead letters to replay"
        raise InvalidConfig(message)
    topic = config.kafka.topic  # dead letters of other sources are not replayed
    _check_has_commits(config)
    adapted = _keeping_metadata_tables(_as_one_of_several(config))
    prepared = prepare_sink(adapted, None)
    assert prepared.letters is not None, "dead letters are enabled"
    rows, letters = prepared.rows.found, prepared.letters.found
    assert rows is not None and letters is not None, "both tables have commits"
    if not overwrites_newer:
        _check_ordered(rows, inserts=config.table.inserts)
    for table in (rows, letters):
        if config.concurrency.mode == "single_writer":
            _check_not_writing(table)
        check_conditional_puts(table.storage)
    opened = open_writers(adapted, prepared, rows, letters, builds_metadata_tables=False)
    assert opened.rejects is not None, "dead letters are enabled"
    return LetterReplay(
        opened.rows,
        opened.rejects,
        opened.prepare,
        topic=topic,
        identity=config.source.checkpoint_id,
        partition_change=opened.rule,
        duplicates=opened.duplicates,
        overwrites_newer=overwrites_newer,
        facts={} if hooks is None else hooks.begin_replay(opened.rows.table),
    )


def _check_has_commits(config: PipelineConfig) -> None:
    """Check that the table has a commit, and that the dead letters are those of lakemark."""
    _schema_at(config.table.location(), config.table.timeline_timezone)
    letters = dead_letters_location(config)
    if not is_dead_letter_table(_schema_at(letters)):
        message = f"{letters.url} is not a dead-letter table; correct dead_letters.path"
        raise InvalidConfig(message)


def _schema_at(location: StorageLocation, timezone: str | None = None) -> pa.Schema:
    try:
        schema = open_table(location, timezone=timezone).schema
    except TableNotFound:
        message = f"there is no table at {location.url}, so there is nothing to replay"
        raise Refused(message) from None
    if schema is None:
        message = f"table {location.url} has no commit yet, so there is nothing to replay"
        raise Refused(message)
    return schema


def _as_one_of_several(config: PipelineConfig) -> PipelineConfig:
    if config.concurrency.lock.provider == LockProviderName.IN_PROCESS:
        message = (
            "the pipeline keeps the table's lock in its own memory, where other processes do not "
            "see it; stop the pipeline, and replay with --set concurrency.lock.provider=storage"
        )
        raise InvalidConfig(message)
    if config.concurrency.mode != "single_writer":
        return config
    changed = config.concurrency.model_copy(update={"mode": "multi_writer"})
    return config.model_copy(update={"concurrency": changed})


def _keeping_metadata_tables(config: PipelineConfig) -> PipelineConfig:
    """Return the configuration of a writer that keeps each metadata table that a table has.

    Only a start of the pipeline removes a metadata table, because its user expects it from a start.
    """
    kept = {"metadata_table": True, "drop_metadata_table": False}
    return config.model_copy(update={"table": config.table.model_copy(update=kept)})


def _check_ordered(table: OpenTable, *, inserts: bool) -> None:
    """Check that a replayed record does not overwrite a newer row of its key.

    Raises:
        Refused: the merge mode of the table, or its merger, does not compare event times.
        Unsupported: the payload or the partial update mode of the table is unknown.
    """
    settings = merge_settings(table.properties)
    if inserts or (settings.mode is MergeMode.EVENT_TIME and settings.ordering_fields):
        return
    message = (
        f"table {table.location.url} {_merges_by(settings)}, so a replayed record may overwrite a "
        "row of its key that was written later; choose letters whose keys have no newer rows "
        "(--where), and add --overwrite-newer"
    )
    raise Refused(message)


def _merges_by(settings: MergeSettings) -> str:
    if settings.mode is MergeMode.CUSTOM:
        return "is merged by a custom merger"
    if not settings.ordering_fields:
        return "has no ordering"
    named = ", ".join(settings.ordering_fields)
    return f"is merged in the order of its commits, and not by its ordering ({named})"


def _check_not_writing(table: OpenTable) -> None:
    """Check that no instant may belong to the pipeline, which emits no heartbeats.

    An instant whose heartbeat has expired is not one of the pipeline, but for example that of a
    replay that was killed. ``LetterReplay.run`` rolls it back.

    Raises:
        Refused: an instant has no heartbeat.
    """
    for instant in table.timeline.pending(*COMMITS):
        if not emits_heartbeats(table.storage, instant):
            message = (
                f"{instant} of {table.location.url} is pending, and its writer emits no "
                "heartbeats, so it may be a batch of the running pipeline (concurrency.mode: "
                "single_writer); repeat the command when the batch is committed, or stop the "
                "pipeline first; if the pipeline has died, its next start rolls the batch back"
            )
            raise Refused(message)
