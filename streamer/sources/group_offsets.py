"""How far a table has read, shown to a consumer group; best effort, and never read back."""

from __future__ import annotations

import time

from checkpoints.checkpoint import KafkaCheckpoint
from streamer.events import GroupCommitFailed, Listener
from streamer.sources.kafka_admin import ANSWER_WITHIN_S, GroupCommit, KafkaAdmin


class GroupOffsets:
    """Offsets of one consumer group; one commit at a time, and only ``close`` waits for one.

    Args:
        admin: asks the broker.
        group: name of the consumer group.
        listener: is told when the broker refuses.
    """

    def __init__(self, admin: KafkaAdmin, group: str, listener: Listener) -> None:
        self._admin, self._group, self._listener = admin, group, listener
        self._under_way: GroupCommit | None = None
        self._newest: KafkaCheckpoint | None = None

    def show(self, checkpoint: KafkaCheckpoint) -> None:
        """Commit these offsets, or newer ones, as soon as the commit before has been answered."""
        self._newest = checkpoint
        if self._under_way is None or self._under_way.is_answered:
            self._finish()
            self._send()

    def close(self, within_s: float = ANSWER_WITHIN_S) -> None:
        """Wait for the answer, show the newest, and wait for that; all within so many seconds."""
        ends_at = time.monotonic() + within_s
        while self._under_way is not None:
            self._finish(max(0.0, ends_at - time.monotonic()))
            if time.monotonic() < ends_at:
                self._send()

    def _finish(self, within_s: float = ANSWER_WITHIN_S) -> None:
        if self._under_way is None:
            return
        reason = self._under_way.refusal(within_s)
        self._under_way = None
        if reason is not None:
            self._listener(GroupCommitFailed(self._group, reason))

    def _send(self) -> None:
        if self._newest is not None:
            self._under_way = self._admin.commit_to_group(self._group, self._newest)
            self._newest = None
