"""Finds out what became of the commits in which replays have claimed dead letters.

A claim is the instant in ``replayed_in`` (``sinks.dead_letters``). If its commit was rolled back or
restored away, the rows of its letters are lost, also if the letters were resolved before.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow.compute as pc

from lakemark.errors import Refused
from lakemark.operations.open_table import OpenTable
from lakemark.timeline.archived_timeline import ArchivedTimeline
from lakemark.timeline.undone_instants import find_completed, find_undone


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of the letters of one topic, each once.

    Attributes:
        unresolved: the claims of letters that are not marked as resolved.
        resolved: the claims of letters that are. A claim may have letters of both kinds.
    """

    unresolved: frozenset[str]
    resolved: frozenset[str]


@dataclass(frozen=True, slots=True)
class JudgedClaims:
    """What became of claims.

    Attributes:
        committed: claims of unresolved letters whose rows are committed. Only their mark is
            missing.
        void: claims whose rows are not committed, or no longer. Their letters are open.
    """

    committed: frozenset[str]
    void: frozenset[str]


def read_claims(table: OpenTable, topic: str) -> Claims:
    """Return the claims of the current snapshot of a dead-letter table.

    Only the letters of one topic count, because those of another topic may have been replayed to
    another table.
    """
    names = ["topic", "replayed_in", "resolved_at"]
    unresolved: set[str] = set()
    resolved: set[str] = set()
    if table.schema is not None and set(names) <= set(table.schema.names):
        for batch in table.scan(columns=names).batches(1):
            own = batch.filter(pc.equal(batch.column("topic"), topic))
            is_resolved = own.column("resolved_at").is_valid()
            for found, is_wanted in ((resolved, is_resolved), (unresolved, pc.invert(is_resolved))):
                instants = own.column("replayed_in").filter(is_wanted).drop_null()
                found.update(instants.unique().to_pylist())
    return Claims(frozenset(unresolved), frozenset(resolved))


class ClaimJudge:
    """Finds the instants of claims on the timeline of the pipeline's table and in its archive.

    Args:
        table: the pipeline's table.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table
        #: Committed instants of the archive, which nothing can undo.
        self._archived: set[str] = set()

    def judge(self, claims: Claims) -> JudgedClaims:
        """Return what became of claims, as of the current snapshot of the table.

        The instant of a resolved claim was once committed. If it is no longer found, its letters
        are open only if a rollback or a restore names the instant. Without this proof, the history
        may have been deleted, and a replay could write the rows twice.

        Raises:
            Refused: another replay is running.
            SnapshotChanged: the archive was rewritten in the meantime.
            CorruptData: the archive is damaged.
        """
        absent = {name for name in claims.unresolved | claims.resolved if not self._is_active(name)}
        absent -= self._archived
        undone: set[str] = set()
        if absent:
            has_history = self._table.timeline.has_history
            archive = self._table.store.load_archived() if has_history else ArchivedTimeline()
            self._archived |= find_completed(archive, absent)
            absent -= self._archived
            undone = self._find_undone(absent & claims.resolved, archive)
        void = frozenset((absent - claims.resolved) | undone)
        return JudgedClaims(committed=claims.unresolved - void, void=void)

    def _find_undone(self, instants: Collection[str], archive: ArchivedTimeline) -> set[str]:
        return find_undone(self._table.store, instants, self._table.timeline, archive)

    def _is_active(self, claim: str) -> bool:
        """Return whether an instant is completed on the timeline.

        Raises:
            Refused: the instant is pending.
        """
        found = self._table.timeline.find(claim)
        if found is None or found.is_completed:
            return found is not None
        message = (
            f"instant {claim} of {self._table.location.url} is pending, because another replay is "
            "writing, or has died; replay (without --dry-run) when that replay has ended, or when "
            "its heartbeat has expired (after two minutes)"
        )
        raise Refused(message)
