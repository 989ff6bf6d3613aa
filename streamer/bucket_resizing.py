"""Splits and merges the buckets of a pipeline's tables, inline or prepared in the background.

Inline, the next batch waits while all rows of a bucket are encoded. In the background, a thread
encodes them while batches are written, then the changes that were logged meanwhile, and so on. The
next batch waits only while the prepared files are copied to the table, and the last changes are
encoded (``lakemark.operations.prepared_resize``).

If other changes of the bucket make the preparation useless, the bucket is prepared again; after
some attempts, it is resized inline. The compactions of this pipeline wait for a preparation of the
table, because they would rewrite its buckets.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from lakemark.execution.runner import Runner
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.operations.prepared_resize import (
    PreparedResize,
    ResizePreparation,
    ResizeRound,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.services.clustering import PlanOutdated
from lakemark.services.resize_plan import ResizePolicy
from streamer.background_preparation import BackgroundPreparation, Done, PreparedWork
from streamer.events import Listener, ServiceCompleted
from streamer.wording import counted

#: The names of the service, and of its preparation, in events and metrics.
SERVICE, PREPARATION = "bucket_resizing", "bucket_preparation"

#: After this number of useless preparations, the buckets are resized inline.
_MAX_USELESS = 3

#: Changes of this size are not encoded in a round of their own. A round is also the last one if not
#: less has been logged during it than during the round before, and after this number of rounds.
_FEW_BYTES, _MAX_ROUNDS = 2 << 20, 12


class BucketResizing:
    """Resizes the buckets of the tables of a pipeline, one table at a time.

    Args:
        policy: decides which buckets are resized; None only to execute pending resizes.
        in_background: whether buckets are prepared while batches are written.
        runner: executes the tasks of resizes that were not prepared.
        listener: receives the events.
        monotonic_s: returns seconds of a clock that is never set back.
    """

    def __init__(
        self,
        policy: ResizePolicy | None,
        runner: Runner,
        listener: Listener,
        *,
        in_background: bool,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy, self._in_background = policy, in_background and policy is not None
        self._runner, self._listener = runner, listener
        self._preparation = BackgroundPreparation(
            PREPARATION,
            self._begin,
            self._resize,
            listener,
            max_useless=_MAX_USELESS,
            monotonic_s=monotonic_s,
        )

    def run(self, writer: TableWriter) -> None:
        """Resize buckets that are due, begin to prepare them, or publish what was prepared.

        Call this between two batches.

        Args:
            writer: the writer of the table, which also writes the batches.
        """
        if not self._in_background:
            self._report(writer, self._resize)
            return
        self._report(writer, self._execute_pending)
        self._report(writer, self._preparation.run)

    def is_preparing(self, writer: TableWriter) -> bool:
        """Return whether buckets of the table are being prepared, or are about to be published."""
        return self._preparation.is_preparing(writer)

    def end(self, within_s: float) -> bool:
        """Discard a preparation; return whether its thread is still running after the time."""
        self._in_background = False
        return self._preparation.end(within_s)

    def _execute_pending(self, writer: TableWriter) -> Done:
        return writer.resize_if_due(None, self._runner)

    def _resize(self, writer: TableWriter) -> Done:
        return writer.resize_if_due(self._policy, self._runner)

    def _begin(self, writer: TableWriter) -> PreparedWork | None:
        assert self._policy is not None
        preparation = writer.begin_resize_preparation(self._policy)
        return None if preparation is None else _PreparedBuckets(writer, preparation)

    def _report(self, writer: TableWriter, resize: Callable[[TableWriter], Done]) -> None:
        started = time.monotonic()
        for instant, metadata in resize(writer):
            seconds, text = time.monotonic() - started, _summary(instant, metadata)
            self._listener(ServiceCompleted(SERVICE, text, seconds, writer.table.location.url))


class _PreparedBuckets:
    """The resize of buckets that a thread prepares in rounds; a ``PreparedWork``.

    Attributes:
        left_out: always "", because a resize is published as a whole.
    """

    left_out = ""

    def __init__(self, writer: TableWriter, preparation: ResizePreparation) -> None:
        self._writer = writer
        self._preparation = preparation  # as of the end of the current round
        self._round: ResizePreparation | ResizeRound = preparation
        self._prepared: PreparedResize | None = None
        self._rounds, self._limit_bytes = 0, math.inf

    def run(self, folder: Path, is_cancelled: Callable[[], bool]) -> None:
        self._prepared = self._round.run(folder, is_cancelled)

    def find_outdated(self) -> PlanOutdated | None:
        return (self._prepared or self._preparation).find_outdated(self._writer.table)

    def next_round(self) -> Callable[[], None] | None:
        """Return what begins to encode the last changes, if they are not few."""
        added_bytes = self._preparation.added_log_bytes(self._writer.table)
        is_worth = _FEW_BYTES < added_bytes < self._limit_bytes
        return self._begin_round if is_worth and self._rounds < _MAX_ROUNDS else None

    def _begin_round(self) -> None:
        """Begin to encode the changes that were logged since the last round."""
        table = self._writer.table
        self._limit_bytes = self._preparation.added_log_bytes(table)
        added = self._result().begin_round(table)
        self._rounds += 1
        self._round, self._preparation = added, added.preparation

    def publish(self) -> Done:
        return self._writer.publish_prepared_resize(self._result())

    def describe(self) -> str:
        return counted(len(self._preparation.plan.groups), "bucket") + " prepared"

    def _result(self) -> PreparedResize:
        assert self._prepared is not None
        return self._prepared


def _summary(instant: Instant, metadata: CommitMetadata) -> str:
    before = sum(map(len, metadata.replaced_file_ids.values()))
    files = [stat for stat in metadata.write_stats if stat.path]
    after = counted(len({(stat.partition_path, stat.file_id) for stat in files}), "bucket")
    return f"{instant.requested_at}: {counted(before, 'bucket')} rewritten into {after}"
