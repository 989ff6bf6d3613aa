"""All checks of ``lakemark doctor``: everything that a run needs, except Spark itself.

The checks of a start are among them, with more facts. Trials on the stores of the tables are made
in folders of their own, which are deleted at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from lakemark.operations.open_table import OpenTable
from lakemark.storage.trial_folders import TrialFolders
from streamer.checks import tables
from streamer.checks.catalogs import catalog_checks
from streamer.checks.check import Check, Finding, NotChecked
from streamer.checks.hooks import hook_checks
from streamer.checks.machine import machine_checks, memory_check
from streamer.checks.registry import subject_checks
from streamer.checks.sampled_sizes import SampledSizes
from streamer.checks.source import folder_check, upstream_check
from streamer.checks.stores import lock_check, store_checks, store_name
from streamer.checks.table_state import describe_state
from streamer.checks.topic import (
    read_ranges,
    reading_name,
    source_checks,
    topic_client,
    topic_name,
)
from streamer.config.errors import ConfigError
from streamer.config.kafka_source import KafkaSourceConfig, StartingTime
from streamer.config.pipeline import PipelineConfig
from streamer.config.snapshot import snapshot_warnings
from streamer.config.table_source import TableSourceConfig
from streamer.continuation import after_snapshot, find_own_progress
from streamer.prepared_sink import prepare_sink
from streamer.record_conversion import ColumnsUnknown
from streamer.snapshot import find_state
from streamer.sources import start_rules
from streamer.sources.kafka_offsets import Starting, lag, next_start
from streamer.sources.snapshots.check import check_snapshot
from streamer.sources.tables.errors import SnapshotNotFinal
from streamer.sources.tables.start import find_start
from streamer.table_setup import table_spec
from streamer.wording import counted

#: Seconds for which all checks together may take.
WITHIN_S: Final = 60.0

#: Seconds to wait, after the checks, for abandoned trials to delete their folders. A request to a
#: store that does not answer takes about half of this time.
DELETE_WITHIN_S: Final = 20.0

_FILE = "pipeline file"


def doctor_checks(config: PipelineConfig, folders: TrialFolders) -> list[Check]:
    """Return all checks, in the order in which they are reported.

    Args:
        config: the settings of the pipeline.
        folders: the folders for trials on the stores. The caller closes them when it ends, because
            abandoned checks may still be using them.
    """
    sizes, source = SampledSizes(), config.source
    if isinstance(source, KafkaSourceConfig):
        reading = [*machine_checks(config), *source_checks(source, sizes)]
        reading += _snapshot_checks(config)
        resuming = [*_topic_checks(config, sizes)]
    elif isinstance(source, TableSourceConfig):
        reading, resuming = [upstream_check(source)], [_changes_check(config, source)]
    else:
        reading, resuming = [folder_check(source)], []
    return [
        *local_checks(config),
        *reading,
        *subject_checks(config),
        *_rows_checks(config, folders),
        *_letters_checks(config, folders),
        *_checks_together(config),
        *resuming,
        *catalog_checks(config),
        *hook_checks(config.hooks, config.hook_names),
    ]


def local_checks(config: PipelineConfig) -> Iterator[Check]:
    """Yield the checks that need neither a connection nor another program."""
    yield Check(_FILE, lambda: _check_file(config))
    if config.transform:
        yield Check("transform", lambda: _check_transform(config), (_FILE,))
    if config.table.merger:
        yield Check(f"merger {config.table.merger}", lambda: _check_merger(config))


def _rows_checks(config: PipelineConfig, folders: TrialFolders) -> Iterator[Check]:
    path = config.table.path
    yield from store_checks(path, lambda: tables.rows_location(config), folders)
    yield lock_check(config, lambda: tables.rows_location(config), folders)
    yield Check(
        tables.rows_name(config),
        lambda: _check_table(config, tables.check_rows),
        (store_name(path),),
    )


def _letters_checks(config: PipelineConfig, folders: TrialFolders) -> Iterator[Check]:
    if config.dead_letters.enabled:
        path = config.dead_letters.path
        yield from store_checks(path, lambda: tables.letters_location(config), folders)
        yield Check(
            tables.letters_name(config),
            lambda: _check_table(config, tables.check_letters),
            (store_name(path),),
        )


def _checks_together(config: PipelineConfig) -> Iterator[Check]:
    """Yield the checks that compare the table with the records."""
    table = tables.rows_name(config)
    letters = (tables.letters_name(config),) if config.dead_letters.enabled else ()
    subjects = tuple(one.name for one in subject_checks(config))
    yield Check(
        "columns and keys", lambda: _check_columns(config), (_FILE, table, *letters, *subjects)
    )


def _topic_checks(config: PipelineConfig, sizes: SampledSizes) -> Iterator[Check]:
    """Yield the checks that compare the table and this machine with the topic."""
    needs = tables.rows_name(config), topic_name(config.kafka)
    yield Check("offsets to resume from", lambda: _check_offsets(config), needs)
    yield memory_check(config, sizes, (reading_name(config.kafka),))


def _snapshot_checks(config: PipelineConfig) -> list[Check]:
    """Return the check of the snapshot, if there is one."""
    if config.snapshot is None:
        return []
    return [Check(f"snapshot {config.snapshot.path}", lambda: _check_snapshot(config))]


def _check_snapshot(config: PipelineConfig) -> Finding:
    """Check what the next run would read of the snapshot.

    Raises:
        BadSnapshot: it is empty, or damaged.
        HudiError: its store or its table, or the table of the pipeline, cannot be read.
    """
    state = find_state(config)
    if not state.is_due:
        return Finding("the table records that it was read; no run reads it again")
    of_snapshot = config.of_snapshot()
    size = check_snapshot(of_snapshot)
    with suppress(ColumnsUnknown):
        prepare_sink(of_snapshot, None)
    if state.position is not None:
        return Finding(f"{size}; read in part, and the next run continues")
    return Finding(
        f"{size}; the first run reads it before the topic",
        tuple(snapshot_warnings(config.kafka, config.table)),
    )


def _changes_check(config: PipelineConfig, source: TableSourceConfig) -> Check:
    """Return the check that the source has the changes at which the next run starts."""
    needs = tables.rows_name(config), upstream_check(source).name
    return Check("changes to resume from", lambda: _check_changes(config, source), needs)


def _check_changes(config: PipelineConfig, source: TableSourceConfig) -> Finding:
    table = tables.check_rows(config)
    progress = None if table is None else find_own_progress(config, table)
    checkpoint = None if progress is None else progress.checkpoint
    try:
        start = find_start(source, checkpoint)
    except SnapshotNotFinal as waiting:  # as the run will
        return Finding("no position yet", (str(waiting),))
    first = f"no position yet; the first run starts at {source.start_at}; "
    unread = f"{counted(start.unread, 'unread commit')}"
    return Finding(unread if checkpoint is not None else f"{first}{unread} after it")


def _check_file(config: PipelineConfig) -> Finding:
    """Check that all secrets are found. The settings were checked when the file was loaded.

    Raises:
        ConfigError: a secret cannot be found.
    """
    problems = config.unresolved()
    if problems:
        raise ConfigError(problems)
    return Finding("the settings are valid, and their secrets were found")


def _check_transform(config: PipelineConfig) -> Finding:
    chain = config.transform_chain()
    assert chain is not None, config.transform
    columns = ", ".join(chain.schema.names)
    return Finding(f"{counted(len(chain.steps), 'step')}; columns after the last: {columns}")


def _check_merger(config: PipelineConfig) -> Finding:
    table_spec(config)
    return Finding("imported")


def _check_table(
    config: PipelineConfig, check: Callable[[PipelineConfig], OpenTable | None]
) -> Finding:
    table = check(config)
    if table is None:
        return Finding("does not exist yet; the first run creates it")
    return describe_state(table, config.concurrency.multi_writer())


def _check_columns(config: PipelineConfig) -> Finding:
    """Check that the rows of the pipeline fit the table, with its keys, buckets and columns.

    Raises:
        NotChecked: the columns are inferred from records when the table is created.
    """
    try:
        prepared = prepare_sink(config, None)
    except ColumnsUnknown as reason:
        raise NotChecked(str(reason)) from None
    columns = prepared.converter.table_schema
    key = ", ".join(config.table.record_key) or "automatic"
    return Finding(f"{counted(len(columns), 'column')}, record key: {key}")


def _check_offsets(config: PipelineConfig) -> Finding:
    """Check that the topic has the offsets at which the next run starts.

    Raises:
        ForeignCheckpoint: the table's checkpoint belongs to another topic.
        UnknownPartitions: ``source.starting_offsets`` names partitions that the topic lacks.
        TopicRecreated: the topic was created again, and the pipeline does not allow this.
        LostOffsets: unread records were deleted, and the pipeline does not allow this.
    """
    source, table = config.kafka, tables.check_rows(config)
    progress = None if table is None else find_own_progress(config, table)
    checkpoint = None if progress is None else progress.checkpoint
    read_id = "" if progress is None else progress.topic_id
    with topic_client(source) as client:
        found_id, available = client.topic_id(), read_ranges(source, client)
    if checkpoint is None:
        start = start_rules.first_start(source, _starting(source), available)
        facts = f"no checkpoint yet; the first run starts at {_starting_text(source)}"
    else:
        is_recreated = start_rules.is_recreated(read_id, found_id)
        fallback = start_rules.fallback_of(source)
        position = start_rules.check_own_topic(source, after_snapshot(config, checkpoint))
        start = next_start(position, available, fallback, is_recreated=is_recreated)
        facts = f"{position}; {sum(lag(start.checkpoint, available).values()):,} unread offsets"
    start_rules.check_losses(source, start, read_id, found_id)
    return Finding(facts, tuple(map(str, start.lost)))


def _starting(source: KafkaSourceConfig) -> Starting:
    """Return the start of the first run. A time is not resolved, because it cannot be refused."""
    starting = source.starting_offsets
    return "earliest" if isinstance(starting, StartingTime) else starting


def _starting_text(source: KafkaSourceConfig) -> str:
    starting = source.starting_offsets
    return starting if isinstance(starting, str) else "source.starting_offsets"
