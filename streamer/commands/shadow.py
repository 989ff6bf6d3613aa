"""``lakemark shadow``: proves, next to a running job, that a pipeline writes the same rows."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.common_position import ReachedPosition, reached_positions
from lakemark.errors import InvalidConfig, Refused
from lakemark.model.action import COMMITS
from lakemark.operations.open_table import OpenTable
from lakemark.storage import canonical_url
from streamer.commands.compare import rules_of, show_comparison
from streamer.commands.pipeline_run import run_pipeline
from streamer.comparison.choice import compare_at_common_position
from streamer.config.load import check_resolved, load
from streamer.config.pipeline import PipelineConfig
from streamer.config.run import dead_letters_path
from streamer.config.secrets import build_redactor
from streamer.migration.run_of_job import load_pipeline_of_job, read_job
from streamer.migration.secrets import build_job_redactor
from streamer.sources.start_rules import check_own_topic
from streamer.table_copy import copy_table
from streamer.table_setup import find_table

_PIPELINE_FILES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class _Reached:
    """The newest commit of the job that the new table should reach."""

    commit: str
    checkpoint: KafkaCheckpoint


def execute(arguments: argparse.Namespace) -> int:
    """Let the second table reach the offsets of the job's newest commit, and compare both tables.

    Returns:
        0 if the tables have the same columns and the same rows, else 1.

    Raises:
        InvalidConfig: the job cannot become a pipeline that writes the same rows, a setting is not
            valid, or ``--to`` names a folder of the job's tables.
        Refused: the job's table records no offsets, the second table was not copied completely, or
            the run was stopped before both tables had the same offsets.
        SourceError: the topic cannot be read up to the offsets of the job.
        HudiError: a table cannot be read or written.
    """
    if arguments.json:  # the only line on stdout is the comparison
        arguments.log_format = "json"
    config, warnings = _load(arguments, arguments.overrides)
    _check_other_table(config, arguments.to)
    old = _find_old(config)
    reached = _newest(config, old)
    overrides = [*arguments.overrides, *_overrides(config, arguments.to, reached.checkpoint)]
    if arguments.from_topic and config.kafka.starting_offsets == "latest":
        overrides.append("source.starting_offsets=earliest")
    shadow, _ = _load(arguments, overrides)
    arguments.redacted = build_redactor(shadow)
    check_resolved(shadow)
    _prepare(arguments, shadow, old, reached)
    if not run_pipeline(arguments, shadow, warnings):
        message = (
            f"the run was stopped before {shadow.table.path} reached {reached.checkpoint}, so "
            "nothing was compared; call lakemark shadow again, which continues"
        )
        raise Refused(message)
    old.refresh()
    compared = compare_at_common_position(old, _open_new(shadow), rules_of(arguments))
    return show_comparison(compared, as_json=arguments.json)


def _load(
    arguments: argparse.Namespace, overrides: Sequence[str]
) -> tuple[PipelineConfig, Sequence[str]]:
    """Return the pipeline that the file describes, and warnings about a job of HoodieStreamer."""
    if not arguments.file.endswith(_PIPELINE_FILES):
        job = read_job(arguments.file, arguments.job, arguments.source_schema)
        arguments.redacted = build_job_redactor(job.values)
        loaded = load_pipeline_of_job(job, overrides)
        return loaded.config, loaded.warnings
    if arguments.job or arguments.source_schema:
        given = "arguments after --" if arguments.job else "--source-schema"
        message = f"{given} belong to a property file, but {arguments.file} is a pipeline file"
        raise InvalidConfig(message)
    return load(arguments.file, overrides), ()


def _check_other_table(config: PipelineConfig, path: str) -> None:
    """Check that neither the second table nor its dead letters share a folder with the job.

    Raises:
        InvalidConfig: a folder contains the other.
    """
    for own in (config.table.path, config.dead_letters.path):
        for other in (path, dead_letters_path(path)):
            folders = [canonical_url(one).rstrip("/") + "/" for one in (own, other)]
            if own and max(folders).startswith(min(folders)):
                message = (
                    f"--to {path} would write {other}, but {own} belongs to the job; name another "
                    "folder for the second table"
                )
                raise InvalidConfig(message)


def _find_old(config: PipelineConfig) -> OpenTable:
    """Open the table of the job, to read it.

    Raises:
        Refused: there is no table yet.
    """
    found = find_table(config.table.location(), config.table.timeline_timezone)
    if found is None or found.schema is None:
        message = (
            f"the job has written no table at {config.table.path} yet, so there is nothing to "
            "compare; start the job first"
        )
        raise Refused(message)
    return found


def _newest(config: PipelineConfig, old: OpenTable) -> _Reached:
    """Return the newest commit of the job with offsets of the topic.

    Raises:
        Refused: there is none.
        ForeignCheckpoint: the offsets belong to another topic.
    """
    reached: Sequence[ReachedPosition] = reached_positions(old, config.source.checkpoint_id)
    if not reached:
        message = (
            f"no active commit of {old.location.url} records the offsets that the job has read; "
            "let the job commit, or compare the tables at times with lakemark compare"
        )
        raise Refused(message)
    newest = reached[0]
    checkpoint = check_own_topic(config.kafka, newest.position)
    return _Reached(newest.commit.requested_at, checkpoint)


def _overrides(config: PipelineConfig, path: str, end: KafkaCheckpoint) -> Sequence[str]:
    """Return what differs between the pipeline of the job and that of the second table.

    The second table has its own dead letters, and shares neither the lock, the name in catalogs,
    the consumer group nor the port of metrics with the job. No hook announces its commits. Its rows
    come from the table of the job, not from a snapshot.
    """
    ending = {str(partition): offset for partition, offset in end.offsets.items()}
    values: dict[str, object] = {
        "name": f"{config.name}-shadow",
        "table.path": path,
        "dead_letters.path": dead_letters_path(path),
        "source.ending_offsets": ending,
        "source.checkpoint_id": "",
        "source.commit_group": None,
        "catalogs": [],
        "hooks": [],
        "snapshot": None,
        "concurrency": {},
        "metrics": {},
        "run.mode": "once",
    }
    return [f"{name}={json.dumps(value)}" for name, value in values.items()]


def _prepare(
    arguments: argparse.Namespace, config: PipelineConfig, old: OpenTable, reached: _Reached
) -> None:
    """Copy the rows of the job's table, if there is no second table yet.

    Raises:
        Refused: the second table was not copied completely.
    """
    found, from_topic = find_table(config.table.location()), arguments.from_topic
    if found is None and not from_topic:
        if arguments.log_format != "json":  # with JSON, stderr has only events
            text = f"copying the rows of {old.location.url} as of {reached.checkpoint}"
            print(text, file=sys.stderr)
        copy_table(old, reached.commit, config, reached.checkpoint)
    elif found is not None and not reached_positions(found):
        if from_topic and not found.timeline.completed(*COMMITS):
            return  # the first call has ended before its first commit
        message = (
            f"{found.location.url} has no offsets, because it was not copied completely or is "
            "another table; delete it, or name another folder with --to"
        )
        raise Refused(message)


def _open_new(config: PipelineConfig) -> OpenTable:
    found = find_table(config.table.location())
    assert found is not None, config.table.path
    return found
