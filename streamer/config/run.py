"""``compaction``, ``dead_letters``, ``run`` and ``spark``: how the application behaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from streamer.config.errors import Problem
from streamer.config.section import Place, Section
from streamer.config.settings import Settings


class CompactionConfig(Section):
    """Merging of log files into base files, for merge-on-read tables."""

    enabled: bool = True
    """Whether this application compacts."""

    every_delta_commits: Annotated[int, Field(ge=1)] = 5
    """Compact after so many commits."""

    when: Literal["inline", "beside"] = "inline"
    """``inline`` compacts between two batches, which wait for it. ``beside`` compacts while batches
    go on, with half of this machine's cores, or, on a cluster, in a pool of its own."""

    wait_budget_s: Annotated[float, Field(ge=0)] = 10.0
    """With ``beside``: at most so many seconds does a batch wait for a compaction; it does when the
    table is behind by more than ``backlog_commits``."""

    backlog_commits: Annotated[int, Field(ge=1)] = 20
    """With ``beside``: so many delta commits may be there that are not compacted before batches
    wait."""

    give_up_after_s: Annotated[float, Field(ge=0)] = 3600.0
    """With ``beside``: a compaction that has failed for so many seconds ends the run; until then it
    is tried again, with the pauses of ``run.on_error``. 0: it never does."""


class DeadLettersConfig(Section):
    """Where records go that cannot become rows, with the reason."""

    enabled: bool = True
    """Keep them. Otherwise the first such record stops the run."""

    path: Place = ""
    """A table of its own. Left out: the table's path and ``_dead_letters``."""

    max_share: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Stop, and commit nothing of the batch, when more than this share of it is bad, or of the last
    10,000 records (or of all since the start, while these are fewer)."""

    tolerated: Annotated[int, Field(ge=0)] = 9
    """So many bad records, in a batch or among those last ones, never stop a run."""


def dead_letters_path(table_path: str) -> str:
    """Where the dead letters of a table go, unless the pipeline file says it."""
    return f"{table_path.rstrip('/')}_dead_letters"


class RetryConfig(Section):
    """What happens when a batch fails for a reason that may pass."""

    max_attempts: Annotated[int, Field(ge=1)] = 5
    """Give up after so many failures in a row."""

    backoff_s: Annotated[float, Field(ge=0)] = 1.0
    """Seconds before the second attempt; doubled before each further one."""

    max_backoff_s: Annotated[float, Field(ge=0)] = 60.0
    """The longest pause, in seconds."""


class RunConfig(Section):
    """How long, how often."""

    mode: Literal["continuous", "once"] = "continuous"
    """``once`` ends when everything is read that was in the topic at the start."""

    trigger_interval_s: Annotated[float, Field(ge=0)] = 1.0
    """At least so many seconds from the start of one batch to the start of the next."""

    alive_interval_s: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """Seconds between two signs of life in the log (``Alive``: checkpoint and lag)."""

    on_error: RetryConfig = RetryConfig()
    """Retries."""


class SparkConfig(Section):
    """The Spark session."""

    master: Annotated[str, Field(min_length=1)] | None = None
    """Left out: ``local[*]``, or what ``spark-submit`` was given."""

    conf: Settings
    """Any Spark property."""


def retry_problems(retry: RetryConfig) -> Iterator[Problem]:
    """Pauses that contradict each other."""
    if retry.max_backoff_s < retry.backoff_s:
        text = (
            f"{retry.max_backoff_s:g} is less than backoff_s, {retry.backoff_s:g}; raise it, or "
            "lower backoff_s"
        )
        yield Problem("run.on_error.max_backoff_s", text)
