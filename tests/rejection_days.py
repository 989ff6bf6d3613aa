"""Days on which records are rejected, and what dead-letter tables have of each day."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakemark.model.meta_columns import PARTITION_PATH
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from sinks.hudi import rejection_times

FIRST = datetime(2100, 3, 1, 23, 59, 30, tzinfo=UTC)


class Days:
    """The clock of rejections, which only a test advances.

    Args:
        monkeypatch: sets the clock for a test.
        first: the first time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: datetime = FIRST) -> None:
        self.now = first
        monkeypatch.setattr(rejection_times, "utc_now", lambda: self.now)

    def advance(self, days: float = 1.0) -> None:
        self.now += timedelta(days=days)


def letters_at(location: StorageLocation) -> list[dict[str, Any]]:
    """Read all dead letters with a new reader, by offset and then by day."""
    rows = open_table(location).scan().to_reader().read_all().to_pylist()
    return sorted(rows, key=lambda row: (row["offset"], row["rejected_on"]))


def count_by_path(location: StorageLocation) -> dict[str, int]:
    """Return the number of dead letters in each partition."""
    return dict(Counter(row[PARTITION_PATH] for row in letters_at(location)))
