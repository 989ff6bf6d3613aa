"""``lakemark migrate``: prints the pipeline file that does the same as a job of HoodieStreamer."""

from __future__ import annotations

import argparse
import sys

from lakemark.operations.open_table import OpenTable
from streamer.checks.tables import check_letters, check_rows
from streamer.config.pipeline import PipelineConfig
from streamer.config.secrets import build_redactor
from streamer.continuation import find_own_progress
from streamer.migration.pipeline_text import add_to_head
from streamer.migration.report import render_incomplete, render_report
from streamer.migration.run_of_job import read_job
from streamer.migration.secrets import build_job_redactor
from streamer.migration.translation import translate
from streamer.prepared_sink import prepare_sink
from streamer.record_conversion import ColumnsUnknown


def execute(arguments: argparse.Namespace) -> int:
    """Print the pipeline file to stdout, and what has no counterpart to stderr.

    Returns:
        0 if the pipeline writes the same rows as the job, else 1.

    Raises:
        ConfigError: the property file cannot be read.
        InvalidConfig: an argument is not one of HoodieStreamer.
        HudiError: with ``--check-table``, a run would refuse a table of the pipeline.
    """
    job = read_job(arguments.properties, arguments.job, arguments.source_schema)
    arguments.redacted = redacted = build_job_redactor(job.values)
    found = translate(job, _head(arguments.properties))
    if found.text is not None:
        notice = redacted("\n".join(render_incomplete(found, job))).splitlines()
        sys.stdout.write(add_to_head(found.text, notice))
    sys.stderr.write(redacted(render_report(found, job)))
    if arguments.check_table and found.config is not None:
        of_pipeline = build_redactor(found.config)
        arguments.redacted = lambda text: of_pipeline(redacted(text))
        sys.stderr.write(_check_table(found.config))
    return 0 if found.is_complete else 1


def _check_table(config: PipelineConfig) -> str:
    """Check the tables as a run does before it writes; return lines about the result."""
    table = check_rows(config)
    if config.dead_letters.enabled:
        check_letters(config)
    try:
        prepare_sink(config, None)
    except ColumnsUnknown as reason:
        return f"{_continuation(config, table)}the columns are not checked: {reason}\n"
    return _continuation(config, table)


def _continuation(config: PipelineConfig, table: OpenTable | None) -> str:
    if table is None:
        return f"there is no table at {config.table.path} yet; the first run creates it\n"
    progress = find_own_progress(config, table)
    checkpoint = None if progress is None else progress.checkpoint
    begins = (
        f"at {checkpoint}" if checkpoint else "at source.starting_offsets: it has no checkpoint"
    )
    return f"the pipeline can continue table {config.table.path}, {begins}\n"


def _head(location: str) -> str:
    name = location.rpartition("/")[2]
    return (
        f"The job of HoodieStreamer with {name}, translated by lakemark migrate. Comments explain "
        "the settings that have no counterpart in the job."
    )
