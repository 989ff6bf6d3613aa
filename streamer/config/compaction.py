"""``compaction``: when log files are merged into base files, and which of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from lakemark.model.partition_pattern import PartitionPattern
from lakemark.services.compaction_plan import CompactionPolicy, DueWhen
from lakemark.services.slice_choice import SliceChoice, SliceOrder
from streamer.config.errors import Problem
from streamer.config.patterns import Patterns
from streamer.config.section import Section
from streamer.config.table import TableConfig
from streamer.durations import parse_duration

_DEFAULT_COMMITS = 5


def _check_duration(text: str) -> str:
    if not parse_duration(text):
        message = "expected more than no time; write a longer time, or remove the setting"
        raise ValueError(message)
    return text


class CompactionConfig(Section):
    """Compaction merges log files into base files. It applies to merge-on-read tables only.

    The pipeline checks after each batch whether a compaction is due. See
    [Compaction](services.md#compaction).
    """

    enabled: bool = True
    """Whether this pipeline compacts the table."""

    after_commits: Annotated[int, Field(ge=1)] | None = None
    """Compact after this number of delta commits. Default: 5, or no limit if there is an ``after``
    or ``after_log_bytes``."""

    after: Annotated[str, AfterValidator(_check_duration)] | None = None
    """Compact when the oldest log file is this old, such as ``30m``, ``1h`` or ``1d``. Default: no
    limit."""

    after_log_bytes: Annotated[int, Field(ge=1)] | None = None
    """Compact when the log files together are this large. Default: no limit."""

    when: Literal["any", "all"] = "any"
    """With several of the limits above: compact when ``any`` or ``all`` of them are reached."""

    order: Literal["most_log_bytes", "newest_partitions", "oldest_partitions"] = "most_log_bytes"
    """Which file groups come first in a compaction that ``max_partitions`` or ``max_io_bytes``
    limits: those with the most bytes of log files, or those of the partitions with the latest or
    the earliest date in their paths."""

    partitions: Patterns = ()
    """Compact only partitions whose paths match one of these patterns, such as ``day=2026-*``, in
    which each ``*`` stands for any text, or ``regex:^day=2026``, which contains a regular
    expression. Default: all partitions."""

    max_partitions: Annotated[int, Field(ge=1)] | None = None
    """The largest number of partitions in one compaction. Default: no limit."""

    max_io_bytes: Annotated[int, Field(ge=1)] | None = None
    """The largest number of bytes that one compaction reads and writes, estimated from the sizes of
    the files. This limits the duration of a compaction. One file group is always compacted; the
    others follow in later compactions. Default: no limit."""

    logs: Annotated[int, Field(ge=2)] | None = None
    """Merge the logs of a file group into one log after this number of delta commits since the last
    compaction, without rewriting the base file, so that queries merge fewer changes. Only file
    groups with logs of so many commits are merged. It must be less than ``after_commits``. See [Log
    compaction](services.md#log-compaction). Default: this pipeline plans no log compaction. It
    executes log compactions that other writers have planned."""

    mode: Literal["inline", "async"] = "inline"
    """``inline`` compacts between two batches; the next batch waits for the compaction. ``async``
    compacts while batches are written: with half of this machine's cores or, on a cluster, in a
    separate scheduler pool."""

    max_wait_s: Annotated[float, Field(ge=0)] = 10.0
    """With ``async``: the longest time, in seconds, that a batch waits for a compaction. Then the
    batch is written anyway. A batch waits while the compaction is published, and if more than
    ``backlog_commits`` delta commits are not compacted. It does not wait for a compaction that has
    failed. The same limit applies to ``bucket_resizing.mode: async`` and ``clustering.mode:
    async``."""

    backlog_commits: Annotated[int, Field(ge=1)] = 20
    """With ``async``: batches wait if more than this number of delta commits are not compacted."""

    give_up_after_s: Annotated[float, Field(ge=0)] = 3600.0
    """With ``async``: a failed compaction is retried, with the pauses of ``run.retry``. The run
    stops when the compaction has failed for this number of seconds. 0: the run never stops. The
    same limit applies to ``bucket_resizing.mode: async``. A clustering never stops the run."""

    def compaction_policy(self) -> CompactionPolicy:
        """Return when a compaction is due."""
        has_other_limit = self.after is not None or self.after_log_bytes is not None
        default = None if has_other_limit else _DEFAULT_COMMITS
        return CompactionPolicy(
            self.after_commits or default,
            None if self.after is None else parse_duration(self.after),
            self.after_log_bytes,
            DueWhen(self.when),
        )

    def slice_choice(self) -> SliceChoice:
        """Return which file slices of the pipeline's table a compaction rewrites."""
        return SliceChoice(
            order=SliceOrder(self.order),
            partitions=tuple(map(PartitionPattern, self.partitions)),
            max_partitions=self.max_partitions,
            max_io_bytes=self.max_io_bytes,
        )


def compaction_problems(compaction: CompactionConfig, table: TableConfig) -> Iterator[Problem]:
    """Yield problems of settings that have no effect, or of partitions that do not exist."""
    if compaction.mode == "async" and table.type == "copy_on_write":
        text = (
            "async has no effect with table.type copy_on_write, which has no log files to compact; "
            "remove it"
        )
        yield Problem("compaction.mode", text)
    yield from _log_problems(compaction, table)
    limits = (compaction.after_commits, compaction.after, compaction.after_log_bytes)
    if compaction.when == "all" and sum(limit is not None for limit in limits) < 2:
        text = (
            "all has no effect unless two of after_commits, after and after_log_bytes are set; "
            "set a second one, or remove it"
        )
        yield Problem("compaction.when", text)
    if table.partition_by:
        return
    for name in ("partitions", "max_partitions"):
        if getattr(compaction, name):
            text = "has no effect without table.partition_by; remove it"
            yield Problem(f"compaction.{name}", text)
    if compaction.order != "most_log_bytes":
        text = f"{compaction.order} has no effect without table.partition_by; remove it"
        yield Problem("compaction.order", text)


def _log_problems(compaction: CompactionConfig, table: TableConfig) -> Iterator[Problem]:
    """Yield problems of a log compaction that never takes place, or that the table forbids."""
    setting, logs = "compaction.logs", compaction.logs
    if logs is None:
        return
    if not compaction.enabled:
        yield Problem(setting, f"{logs} has no effect if compaction.enabled is false; remove it")
    if table.type == "copy_on_write":
        text = f"{logs} has no effect with table.type copy_on_write, which has no log files"
        yield Problem(setting, f"{text}; remove it")
    if table.cdc != "none":
        text = f"{logs} cannot be combined with table.cdc, for which the logs of each commit"
        yield Problem(setting, f"{text} are compared; remove one of them")
    if table.merge_mode == "custom":
        text = f"{logs} cannot be combined with your own merger, which may need deleted rows"
        yield Problem(setting, f"{text}; remove one of them")
    after = compaction.compaction_policy().after_commits
    if after is not None and logs >= after and compaction.when == "any":
        text = (
            f"{logs} has no effect, because a compaction follows {after} commits "
            "(compaction.after_commits); choose a smaller number, or compact less often"
        )
        yield Problem(setting, text)
