"""What an instant does, and how far it has come (specification, "Transaction Log")."""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    """Kind of an instant; the value is the word in its file name."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLUSTERING = "clustering"
    REPLACE_COMMIT = "replacecommit"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    RESTORE = "restore"
    INDEXING = "indexing"
    SCHEMA_COMMIT = "schemacommit"

    @property
    def completes_as(self) -> Action:
        """The action named by the completed file: a pending compaction becomes a commit."""
        return _COMPLETES_AS.get(self, self)

    @property
    def is_ingest(self) -> bool:
        """Whether a writer of rows makes it (and so may keep a checkpoint in it)."""
        return self in COMMITS

    @property
    def is_write(self) -> bool:
        """Whether it adds data files; the first of these is where the timeline starts."""
        return self.completes_as.is_ingest

    @property
    def is_table_service(self) -> bool:
        """Whether it is a planned rewrite, which a starting writer leaves pending."""
        return self in _COMPLETES_AS


#: What writes of rows complete as; services that rewrite files end as one of them, too.
COMMITS = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)

_COMPLETES_AS = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}


class State(StrEnum):
    """How far an instant has come; it only ever moves forward."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"
