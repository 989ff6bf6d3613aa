"""The active timeline on storage.

Invariants: files are created, never replaced; an instant goes requested → inflight → completed;
a completed instant is never rewritten; ``publish`` is the only way to complete one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from table.codec import avro_container
from table.errors import CorruptData
from table.model.action import Action, State
from table.model.commit_metadata import CommitMetadata
from table.model.compaction_plan import CompactionPlan
from table.model.instant import Instant
from table.model.rollback import RollbackPlan
from table.storage.storage import Storage
from table.timeline.layout import LayoutV2, TimelineLayout
from table.timeline.timeline import Timeline

# Not below ``.hoodie/.temp/<instant>``: Apache's rollback takes every file there for a marker.
_PREPARED_FOLDER = ".hoodie/.aux/prepared"

_SCHEMAS = {
    Action.COMMIT: "HoodieCommitMetadata",
    Action.DELTA_COMMIT: "HoodieCommitMetadata",
    Action.REPLACE_COMMIT: "HoodieReplaceCommitMetadata",
}


class TimelineStore:
    """Reads and writes instants of one table."""

    def __init__(self, storage: Storage, layout: TimelineLayout | None = None) -> None:
        self._storage = storage
        self._layout = layout or LayoutV2()
        self._commits: dict[Instant, CommitMetadata] = {}

    def load(self) -> Timeline:
        """The active timeline as storage shows it now; one listing."""
        history, objects = self._storage.list_folder(self._layout.folder)
        instants = [i for o in objects if (i := self._layout.parse(o.name)) is not None]
        return Timeline.of(instants, has_history=bool(history))

    def path_of(self, instant: Instant) -> str:
        """Path of an instant's file, from the table's root."""
        return f"{self._layout.folder}/{self._layout.name_of(instant)}"

    def create(self, instant: Instant, content: bytes = b"") -> None:
        """Write a requested or inflight instant.

        Raises:
            AlreadyExists: another writer made an instant of this name.
        """
        assert not instant.is_completed, instant
        self._storage.create(self.path_of(instant), content)

    def prepare(self, pending: Instant, content: bytes) -> None:
        """Lay down the content of the completed instant where a rollback would remove it."""
        self._storage.put(self._prepared_path(pending), content)

    def publish(self, pending: Instant, completed_at: str) -> Instant:
        """Make the prepared content the completed instant: from here on readers see it.

        Raises:
            NotFound: somebody removed the prepared content; nothing was published.
        """
        completed = pending.completed(completed_at)
        self._storage.publish(self._prepared_path(pending), self.path_of(completed))
        return completed

    def withdraw(self, pending: Instant) -> None:
        """Remove the prepared content of another's instant, so that it cannot publish any more."""
        self._storage.delete([self._prepared_path(pending)])

    def forget(self, instant: Instant) -> None:
        """Remove a pending instant, inflight first, once none of its files are left."""
        for state in (State.INFLIGHT, State.REQUESTED):
            self._storage.delete(
                [self.path_of(Instant(instant.requested_at, instant.action, state))]
            )

    def read_commit(self, instant: Instant) -> CommitMetadata:
        """Metadata of a completed commit, delta commit or replace commit; read once."""
        if instant not in self._commits:
            record = self._read_record(instant, "a commit's metadata")
            self._commits[instant] = CommitMetadata.from_record(record)
        return self._commits[instant]

    def read_compaction_plan(self, requested_at: str) -> CompactionPlan:
        """Plan of a compaction, pending or completed."""
        requested = Instant(requested_at, Action.COMPACTION, State.REQUESTED)
        return CompactionPlan.from_record(self._read_record(requested, "a compaction plan"))

    def read_rollback_plan(self, requested_at: str) -> RollbackPlan:
        """Plan of a rollback, pending or completed."""
        requested = Instant(requested_at, Action.ROLLBACK, State.REQUESTED)
        return RollbackPlan.from_record(self._read_record(requested, "a rollback plan"))

    def _read_record(self, instant: Instant, what: str) -> Mapping[str, Any]:
        path = self.path_of(instant)
        data = self._storage.read(path)
        if not data:
            raise CorruptData(path, 0, what, "an empty file")
        return avro_container.decode(data, path)

    @staticmethod
    def _prepared_path(pending: Instant) -> str:
        return f"{_PREPARED_FOLDER}/{pending.requested_at}"


def commit_content(action: Action, metadata: CommitMetadata) -> bytes:
    """Stored bytes of a completed (or inflight) commit."""
    return avro_container.encode(_SCHEMAS[action.completes_as], metadata.to_record())


def compaction_plan_content(plan: CompactionPlan) -> bytes:
    """Stored bytes of a requested compaction."""
    return avro_container.encode("HoodieCompactionPlan", plan.to_record())


def rollback_plan_content(plan: RollbackPlan) -> bytes:
    """Stored bytes of a requested rollback."""
    return avro_container.encode("HoodieRollbackPlan", plan.to_record())


def rollback_metadata_content(plan: RollbackPlan, started_at: str, took_ms: int) -> bytes:
    """Stored bytes of a completed rollback."""
    return avro_container.encode(
        "HoodieRollbackMetadata", plan.metadata_record(started_at, took_ms)
    )
