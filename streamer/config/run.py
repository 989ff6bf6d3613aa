"""The sections ``dead_letters``, ``run`` and ``spark``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from streamer.config.errors import Problem
from streamer.config.section import Location, Section
from streamer.config.settings import Settings
from streamer.durations import parse_duration


def _check_retention(text: str) -> str:
    if parse_duration(text) < timedelta(days=1):
        message = "expected at least a day, because dead letters are deleted by the day"
        raise ValueError(message)
    return text


class DeadLettersConfig(Section):
    """A table for records that cannot become rows, with the reason for each record.

    See [Dead letters](dead_letters.md).
    """

    enabled: bool = True
    """Whether such records are kept in the dead-letter table. If this is false, the first such
    record stops the run."""

    path: Location = ""
    """The path or URL of the dead-letter table. Default: the path of the table, followed by
    ``_dead_letters``."""

    max_share: Annotated[float, Field(ge=0, le=1)] = 0.05
    """The largest share of a batch's records that may go to the dead letters. If the share is
    larger, the run stops and does not commit the batch. The same limit applies to about the last
    10,000 records together (or to all records since the start, if there are fewer)."""

    tolerated: Annotated[int, Field(ge=0)] = 9
    """This number of dead letters, or fewer, never stops a run, neither in one batch nor among the
    last 10,000 records."""

    retention: Annotated[str, Field(min_length=2), AfterValidator(_check_retention)] | None = None
    """How long dead letters are kept, resolved or not, such as ``30d``: a whole number with ``d``,
    ``h``, ``m`` or ``s``, and at least a day. Dead letters are deleted by the day (UTC) on which
    they were rejected, when the whole day is older. The table needs [partitions by
    day](dead_letters.md#partitions). Default: dead letters are kept."""

    def kept_for(self) -> timedelta | None:
        """Return how long dead letters are kept; None for ever."""
        return None if self.retention is None else parse_duration(self.retention)


def dead_letters_path(table_path: str) -> str:
    """Return the default path of the dead-letter table."""
    return f"{table_path.rstrip('/')}_dead_letters"


class RetryConfig(Section):
    """Retries of a batch that fails for a temporary reason."""

    max_attempts: Annotated[int, Field(ge=1)] = 5
    """The run stops after this number of consecutive failures."""

    backoff_s: Annotated[float, Field(ge=0)] = 1.0
    """Seconds before the second attempt. The pause doubles after each further attempt."""

    max_backoff_s: Annotated[float, Field(ge=0)] = 60.0
    """The longest pause between two attempts, in seconds."""


class RunConfig(Section):
    """How long the pipeline runs, and how often it writes a batch."""

    mode: Literal["continuous", "once"] = "continuous"
    """``once`` stops when it has read all records that the topic held when the run started.
    ``continuous`` runs until it is stopped."""

    trigger_interval_s: Annotated[float, Field(ge=0)] = 1.0
    """The shortest time in seconds from the start of one batch to the start of the next."""

    read_ahead: bool = True
    """Whether the next batch is read while the current batch is decoded, written and published. The
    next batch is published only after the current one, and not if the current one fails. Reading
    ahead takes the memory of a second batch."""

    alive_interval_s: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """Seconds between two ``Alive`` lines in the log, which report the checkpoint and the lag."""

    retry: RetryConfig = RetryConfig()
    """How a failed batch is retried."""


class SparkConfig(Section):
    """The Spark session."""

    master: Annotated[str, Field(min_length=1)] | None = None
    """The Spark master. Default: the master that ``spark-submit`` was given, or ``local[*]``."""

    conf: Settings
    """Any Spark properties. Under ``spark-submit``, only those that can be changed in a running
    session have an effect."""


def retry_problems(retry: RetryConfig) -> Iterator[Problem]:
    """Yield a problem if the longest pause is shorter than the first pause."""
    if retry.max_backoff_s < retry.backoff_s:
        text = (
            f"{retry.max_backoff_s:g} is less than backoff_s, {retry.backoff_s:g}; raise it, or "
            "lower backoff_s"
        )
        yield Problem("run.retry.max_backoff_s", text)
