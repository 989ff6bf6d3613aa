"""Commits the table's offsets to a consumer group, which tools read; no run reads the group."""

from __future__ import annotations

import time

from checkpoints.checkpoint import KafkaCheckpoint
from streamer.events import GroupCommitFailed, Listener
from streamer.sources.kafka_admin import ANSWER_WITHIN_S, GroupCommit, KafkaAdmin


class GroupOffsets:
    """Commits offsets to one consumer group, one commit at a time. Only ``close`` waits.

    Args:
        admin: the connection to the broker.
        group: the name of the consumer group.
        listener: receives an event if the broker refuses a commit.
    """

    def __init__(self, admin: KafkaAdmin, group: str, listener: Listener) -> None:
        self._admin, self._group, self._listener = admin, group, listener
        self._pending: GroupCommit | None = None
        self._newest: KafkaCheckpoint | None = None

    def use(self, admin: KafkaAdmin) -> None:
        """Use another connection from now on; a commit in progress is not waited for."""
        self._admin, self._pending = admin, None

    def commit(self, checkpoint: KafkaCheckpoint) -> None:
        """Commit these offsets once Kafka has answered the previous commit.

        If this method is called again before the answer, only the newest offsets are committed.
        """
        self._newest = checkpoint
        if self._pending is None or self._pending.is_answered:
            self._finish()
            self._send()

    def close(self, within_s: float = ANSWER_WITHIN_S) -> None:
        """Wait for the current commit, commit the newest offsets, and wait for this commit."""
        ends_at = time.monotonic() + within_s
        while self._pending is not None:
            self._finish(max(0.0, ends_at - time.monotonic()))
            if time.monotonic() < ends_at:
                self._send()

    def _finish(self, within_s: float = ANSWER_WITHIN_S) -> None:
        if self._pending is None:
            return
        reason = self._pending.refusal(within_s)
        self._pending = None
        if reason is not None:
            self._listener(GroupCommitFailed(self._group, reason))

    def _send(self) -> None:
        if self._newest is not None:
            self._pending = self._admin.commit_to_group(self._group, self._newest)
            self._newest = None
