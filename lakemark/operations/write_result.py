"""The result of a write, for its caller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The result of a write.

    Attributes:
        instant: the requested time of the commit; None if there was nothing to write.
        completed_at: the completion time of the commit.
        upserts: the number of the caller's rows that an upsert wrote, including rows that lose
            against a newer row.
        inserts: the number of the caller's rows that an insert or a bulk insert wrote.
        skipped: the number of the caller's rows that an insert skipped, because their keys were
            stored already.
        deletes: the number of records that were deleted, or of rows that were marked as deleted.
        replaced_groups: the number of file groups that an overwrite replaced.
        files: the number of files that the commit wrote.
        written_bytes: the total size of these files.
        repeats: the requested time of the commit that already contains the batch of a stream
            (``Table.batch``) or a later batch of it, so that nothing was written; None otherwise.
    """

    instant: str | None = None
    completed_at: str | None = None
    upserts: int = 0
    inserts: int = 0
    skipped: int = 0
    deletes: int = 0
    replaced_groups: int = 0
    files: int = 0
    written_bytes: int = 0
    repeats: str | None = None
