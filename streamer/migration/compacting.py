"""Translates when a job compacts, and which file groups each of its compactions contains.

Source: ``HoodieCompactionConfig``, ``CompactionTriggerStrategy`` and the classes of
``org.apache.hudi.table.action.compact.strategy`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamer.migration.job import Job
from streamer.migration.outcome import Harmless, Missing, Outcome, Sets
from streamer.migration.rule import NotConvertible, shown, whole_number
from streamer.migration.table import CDC

_TRIGGER = "hoodie.compact.inline.trigger.strategy"
_COMMITS, _SECONDS = (
    "hoodie.compact.inline.max.delta.commits",
    "hoodie.compact.inline.max.delta.seconds",
)
_STRATEGY, _IO = "hoodie.compaction.strategy", "hoodie.compaction.target.io"
_PARTITIONS = "hoodie.compaction.daybased.target.partitions"
_REGEX = "hoodie.compaction.partition.path.regex"
_LOGS, _LOGS_OF = "hoodie.log.compaction.inline", "hoodie.log.compaction.blocks.threshold"
_ALL = (_TRIGGER, _COMMITS, _SECONDS, _STRATEGY, _IO, _PARTITIONS, _REGEX, _LOGS, _LOGS_OF)

_DEFAULT_COMMITS, _DEFAULT_SECONDS, _DEFAULT_PARTITIONS = "5", "3600", "10"
_DEFAULT_LOGS = "5"
_COUNTING = ("NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST", "NUM_AND_TIME", "NUM_OR_TIME")
_TIMING = ("TIME_ELAPSED", "NUM_AND_TIME", "NUM_OR_TIME")

_BY_SIZE, _DAY_BASED = "LogFileSizeBasedCompactionStrategy", "DayBasedCompactionStrategy"
_BY_REGEX = "PartitionRegexBasedCompactionStrategy"
#: The strategies that ``hoodie.compaction.target.io`` limits.
_BOUNDED = (_BY_SIZE, _DAY_BASED, "BoundedIOCompactionStrategy")
_KNOWN = (*_BOUNDED, _BY_REGEX, "UnBoundedCompactionStrategy")


def convert_compaction(job: Job) -> Iterator[Outcome]:
    """Yield when the pipeline compacts its table, and which file groups."""
    if not job.is_merge_on_read:
        yield from _harmless(job.named(*_ALL), "the table has no logs to compact")
        return
    yield from _triggers(job)
    yield from _strategies(job)
    yield from _logs(job)


def _triggers(job: Job) -> Iterator[Outcome]:
    trigger = job.get(_TRIGGER, "NUM_COMMITS").upper()
    if trigger not in (*_COUNTING, *_TIMING):
        remedy = "set compaction.after_commits, compaction.after or both"
        yield Missing(job.named(_TRIGGER), f"{shown(_TRIGGER, trigger)}: {remedy}")
        return
    counts, times = trigger in _COUNTING, trigger in _TIMING
    if counts and (times or job.has(_COMMITS)):
        yield from _number(job, "compaction.after_commits", _COMMITS, _DEFAULT_COMMITS, (_TRIGGER,))
    else:
        yield from _harmless(job.named(_COMMITS), f"{trigger} does not count commits")
    if times:
        yield from _duration(job)
    else:
        yield from _harmless(job.named(_SECONDS), f"{trigger} does not measure time")
    if trigger == "NUM_AND_TIME":
        yield Sets("compaction.when", "all", job.named(_TRIGGER))
    yield from _harmless(job.named(_TRIGGER), "it is the default of compaction")


def _duration(job: Job) -> Iterator[Outcome]:
    try:
        seconds = whole_number(job.get(_SECONDS, _DEFAULT_SECONDS))
    except NotConvertible as reason:
        yield Missing((_SECONDS,), f"{shown(_SECONDS, job.get(_SECONDS))}: {reason}")
        return
    comment = "The time since the oldest log, not since the last compaction."
    yield Sets("compaction.after", f"{seconds}s", job.named(_TRIGGER, _SECONDS), comment)


def _strategies(job: Job) -> Iterator[Outcome]:
    given = job.get(_STRATEGY, _BY_SIZE).split(",")
    strategies = [one.strip().rpartition(".")[2] for one in given]
    unknown = [one for one in strategies if one not in _KNOWN]
    if unknown:
        remedy = (
            "choose file groups with compaction.order, partitions, max_partitions and max_io_bytes"
        )
        yield Missing(job.named(_STRATEGY), f"{shown(_STRATEGY, ', '.join(unknown))}: {remedy}")
    if _DAY_BASED in strategies:
        yield Sets("compaction.order", "newest_partitions", job.named(_STRATEGY))
        yield from _number(
            job, "compaction.max_partitions", _PARTITIONS, _DEFAULT_PARTITIONS, (_STRATEGY,)
        )
    if _BY_REGEX in strategies and job.has(_REGEX):
        patterns = [f"regex:{job.get(_REGEX)}"]
        yield Sets("compaction.partitions", patterns, job.named(_STRATEGY, _REGEX))
    if job.has(_IO) and any(one in _BOUNDED for one in strategies):
        yield from _number(job, "compaction.max_io_bytes", _IO, "", (), 1 << 20)
    yield from _harmless(job.named(_STRATEGY), "it is the default of compaction")
    unused = job.named(_IO, _PARTITIONS, _REGEX)
    yield from _harmless(unused, "it belongs to another hoodie.compaction.strategy")


def _logs(job: Job) -> Iterator[Outcome]:
    """Yield after how many delta commits the logs are merged without a compaction."""
    names = job.named(_LOGS, _LOGS_OF)
    if not job.is_set(_LOGS):
        yield from _harmless(names, "the job does not compact logs")
        return
    try:
        logs = whole_number(job.get(_LOGS_OF, _DEFAULT_LOGS))
        commits = whole_number(job.get(_COMMITS, _DEFAULT_COMMITS))
    except NotConvertible as reason:
        yield Missing(names, f"{shown(_LOGS_OF, job.get(_LOGS_OF))}: {reason}")
        return
    if job.is_set(CDC):
        yield Missing(names, "the logs of a table for CDC queries are not merged; leave it out")
    elif logs < commits:
        yield Sets("compaction.logs", max(2, logs), names)
    else:
        remedy = f"a compaction follows {commits} delta commits, so logs are never merged before it"
        yield Missing(names, f"{remedy}; set compaction.logs to less than compaction.after_commits")


def _number(
    job: Job, setting: str, name: str, default: str, others: tuple[str, ...], factor: int = 1
) -> Iterator[Outcome]:
    """Yield a setting that is a number of a property, times a factor."""
    try:
        value = whole_number(job.get(name, default)) * factor
    except NotConvertible as reason:
        yield Missing((name,), f"{shown(name, job.get(name))}: {reason}")
        return
    yield Sets(setting, value, job.named(name, *others))


def _harmless(names: tuple[str, ...], reason: str) -> Iterator[Outcome]:
    if names:
        yield Harmless(names, reason)
