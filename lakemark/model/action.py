"""The actions and states of instants (specification, "Transaction Log")."""

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
        """The action in the name of the completed file: a compaction completes as a commit."""
        return _COMPLETES_AS.get(self, self)

    @property
    def is_ingest(self) -> bool:
        """Whether a write of rows completes as it, which may contain a checkpoint."""
        return self in COMMITS

    @property
    def is_write(self) -> bool:
        """Whether it adds data files. The timeline starts at the first of these."""
        return self.completes_as.is_ingest

    @property
    def is_table_service(self) -> bool:
        """Whether it is a planned rewrite, which a starting writer keeps pending."""
        return self in _COMPLETES_AS


#: Actions of completed writes of rows, and of completed services that rewrite files.
COMMITS = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)

_COMPLETES_AS = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}


class State(StrEnum):
    """State of an instant; it only moves forward."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"
