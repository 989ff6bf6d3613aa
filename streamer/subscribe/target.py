"""The protocol of a target, and the changes of one commit as texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from lakemark.model.instant import Instant
from streamer.row_output import json_texts
from streamer.subscribe.cursor import Cursor


@dataclass(frozen=True, slots=True)
class ChangeText:
    """One change as text.

    Attributes:
        key: the record key.
        value: the change as an object of JSON, without a line feed.
        is_delete: whether the change deletes the record.
    """

    key: str
    value: str
    is_delete: bool


def change_texts(commit: Instant, batches: Iterable[pa.RecordBatch]) -> Iterator[ChangeText]:
    """Yield the changes of a commit as texts.

    The object has the fields ``op``, ``commit`` (requested time), ``completed_at``, ``partition``,
    ``key``, ``before`` and ``after``.

    Args:
        commit: the commit.
        batches: its changes, as ``ChangeFeed.changes`` returns them.
    """
    for batch in batches:
        ops, keys = (batch.column(name).to_pylist() for name in ("op", "key"))
        for op, key, value in zip(ops, keys, json_texts(_with_commit(batch, commit)), strict=True):
            yield ChangeText(key, value, is_delete=op == "d")


def _with_commit(batch: pa.RecordBatch, commit: Instant) -> pa.RecordBatch:
    times = (commit.requested_at, commit.completed_at or "")
    columns = [pa.repeat(pa.scalar(time), batch.num_rows) for time in times]
    op, *others = batch.columns
    _, *names = batch.schema.names
    return pa.RecordBatch.from_arrays(
        [op, *columns, *others], ["op", "commit", "completed_at", *names]
    )


class Target(Protocol):
    """Where changes are delivered. A target stores the cursor with the changes.

    Each method raises ``TargetUnavailable`` if the target does not answer, and ``TargetRefused`` if
    it does not accept the changes. After an error, the target must be opened again.
    """

    def peek_cursor(self) -> Cursor | None:
        """Return the cursor as known before ``take_over``; None if it is unknown or there is none.

        Another process may still deliver changes.
        """
        ...

    def take_over(self) -> None:
        """End the deliveries of other processes; must be called before the methods below."""
        ...

    def read_cursor(self) -> Cursor | None:
        """Return the stored cursor; None if nothing was delivered yet."""
        ...

    def check_continuous(self) -> None:
        """Check that the target still has what was delivered before its cursor, and only that.

        Not called if the user has asked to restart the subscription.
        """
        ...

    def deliver(self, changes: Iterable[ChangeText], cursor: Cursor) -> int:
        """Deliver the changes of one commit, and store the cursor after it, both or neither.

        Returns:
            The number of changes.
        """
        ...

    def close(self) -> None:
        """Close the target. What was not delivered completely is discarded."""
        ...
