"""The actions and states of instants (specification, "Transaction Log")."""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    """Kind of an instant; the value is the word in the instant's file name."""

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
        """The action in the completed file's name. A completed compaction is a ``commit``."""
        return _COMPLETES_AS.get(self, self)

    @property
    def is_ingest(self) -> bool:
        """Whether a write of rows may complete as this action and so record a checkpoint."""
        return self in COMMITS

    @property
    def is_write(self) -> bool:
        """Whether the action adds data files. The timeline starts at the first such instant."""
        return self.completes_as.is_ingest

    @property
    def is_table_service(self) -> bool:
        """Whether the action is a planned rewrite of files. A starting writer keeps it pending."""
        return self in _COMPLETES_AS


#: Actions of completed commits: writes of rows, and table services that rewrite files.
COMMITS = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)

#: Actions that replace file groups by others, such as a clustering.
REPLACING = (Action.CLUSTERING, Action.REPLACE_COMMIT)

_COMPLETES_AS = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}


class State(StrEnum):
    """State of an instant. An instant passes through the states in this order."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"
