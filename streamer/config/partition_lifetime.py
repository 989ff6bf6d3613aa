"""``partition_lifetime``: how long the rows of a partition are kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from lakemark.services.partition_lifetime import ExpireBy, PartitionLifetime
from streamer.config.errors import Problem
from streamer.config.section import Section
from streamer.config.table import TableConfig

_MINUTES_PER_DAY = 24 * 60


class PartitionLifetimeConfig(Section):
    """Partitions whose lifetime has ended are deleted, with all their rows.

    This is checked when a run starts, and then between two batches. Late records of a deleted
    partition are written to it again. See [Partitions](services.md#partitions).
    """

    days: Annotated[float, Field(gt=0, le=365_000)] | None = None
    """The lifetime of a partition in days, such as ``30`` or ``0.5``. The table must be
    partitioned. Default: partitions do not expire."""

    by: Literal["commit", "creation"] = "commit"
    """When the lifetime begins. ``commit``: with the last commit that wrote to the partition.
    ``creation``: with the commit that created the partition."""

    check_every_minutes: Annotated[float, Field(gt=0)] = 60.0
    """The shortest time in minutes between two checks. A check follows a batch, so a pipeline
    without new records checks only when it starts."""

    @property
    def interval_s(self) -> float:
        """Seconds between two checks."""
        return self.check_every_minutes * 60

    def lifetime(self) -> PartitionLifetime | None:
        """Return the lifetime; None if partitions do not expire."""
        if self.days is None:
            return None
        return PartitionLifetime(timedelta(days=self.days), ExpireBy(self.by))


def partition_lifetime_problems(
    config: PartitionLifetimeConfig, table: TableConfig
) -> Iterator[Problem]:
    """Yield problems of a lifetime: without partitions, or with values that contradict it."""
    if config.days is None:
        for name, field in type(config).model_fields.items():
            value = getattr(config, name)
            if value != field.default:
                text = f"{value} has no effect without partition_lifetime.days; remove it"
                yield Problem(f"partition_lifetime.{name}", text)
        return
    setting = "partition_lifetime.days"
    if not table.partition_by:
        text = f"{config.days:g} needs table.partition_by; set it, or remove the lifetime"
        yield Problem(setting, text)
    if table.index == "consistent_hashing":
        text = (
            f"{config.days:g} cannot be combined with table.index: consistent_hashing, whose hash "
            "rings name the file groups of each partition; remove one of them"
        )
        yield Problem(setting, text)
    if config.check_every_minutes > config.days * _MINUTES_PER_DAY:
        text = (
            f"{config.check_every_minutes:g} minutes are longer than the lifetime of "
            f"{config.days:g} days; check more often"
        )
        yield Problem("partition_lifetime.check_every_minutes", text)
