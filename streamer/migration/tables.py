"""Translates a job that reads a table (``HoodieIncrSource``): the table, the start and the limits.

Source: ``HoodieIncrSource``, ``HoodieIncrSourceConfig`` and ``IncrSourceHelper`` of Apache Hudi.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from streamer.migration.job import SOURCE_CLASS, Job
from streamer.migration.outcome import Missing, Outcome, Sets
from streamer.migration.rule import NotConvertible, shown, whole_number

_SOURCE = "org.apache.hudi.utilities.sources.HoodieIncrSource"

_INCREMENTAL = "hoodie.streamer.source.hoodieincr."
_PATH, _LIMIT = f"{_INCREMENTAL}path", f"{_INCREMENTAL}num_instants"
_STRATEGY = f"{_INCREMENTAL}missing.checkpoint.strategy"
_READS_LATEST = f"{_INCREMENTAL}read_latest_on_missing_ckpt"
_CHECKPOINT = "--checkpoint"
_NEWEST_COMMIT = "READ_LATEST"
_STRATEGIES = ("", _NEWEST_COMMIT, "READ_UPTO_LATEST_COMMIT")
_INSTANT = re.compile(r"\d{14}(\d{3})?", re.ASCII)

_ONLY_FIRST = "Only for a table without a checkpoint."


def reads_table(job: Job) -> bool:
    """Return whether the source of a job is a table."""
    return job.get(SOURCE_CLASS).lower() == _SOURCE.lower()


def convert_table_source(job: Job) -> Iterator[Outcome]:
    """Yield what becomes of the source of a job that reads a table."""
    yield Sets("source.kind", "table", job.named(SOURCE_CLASS))
    comment = "HoodieIncrSource reads no deletes. To delete their rows, write cdc."
    yield Sets("source.query", "incremental", (), comment)
    if job.has(_PATH):
        yield Sets("source.path", job.get(_PATH), (_PATH,))
    else:
        yield Missing((_PATH,), "it is missing, but HoodieStreamer needs it; add it", True)
    yield from _limit(job)
    yield from _start(job)


def _limit(job: Job) -> Iterator[Outcome]:
    if not job.named(_LIMIT):
        return
    try:
        yield Sets("source.max_commits_per_batch", whole_number(job.get(_LIMIT)), (_LIMIT,))
    except NotConvertible as reason:
        yield Missing((_LIMIT,), str(reason))


def _start(job: Job) -> Iterator[Outcome]:
    """Yield where the first run starts: at the given checkpoint, or else by the strategy."""
    names = job.named(_STRATEGY, _READS_LATEST)
    if job.has(_CHECKPOINT):
        given = job.get(_CHECKPOINT)
        if _INSTANT.fullmatch(given):
            yield Sets("source.start_at", given, (_CHECKPOINT, *names), _ONLY_FIRST)
        else:
            yield Missing((_CHECKPOINT,), f"{shown(_CHECKPOINT, given)}: this is no instant", True)
            yield from (Missing((name,), "--checkpoint counts instead") for name in names)
        return
    strategy = job.get(_STRATEGY).upper()
    if strategy not in _STRATEGIES:
        yield Missing(names, f"{strategy} is no strategy of Apache Hudi", True)
    elif strategy == _NEWEST_COMMIT or job.is_set(_READS_LATEST):  # which replaces the strategy
        comment = f"{_ONLY_FIRST} HoodieIncrSource also reads the newest commit."
        yield Sets("source.start_at", "latest", names, comment)
    else:
        yield Sets("source.start_at", "snapshot", names, _ONLY_FIRST)
