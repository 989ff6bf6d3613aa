"""A model of a file slice, record by record: the expected result of queries and compactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from lakemark.model.changes import ChangeKind
from lakemark.model.meta_columns import COMMIT_TIME
from tests.merging.rules import Record, Records, Rule, folded


@dataclass
class SliceModel:
    """A file slice.

    Attributes:
        rule: merges two records of a key.
        is_merge_on_read: whether the table is merge-on-read.
        base: rows of the base file; None if there is none yet.
        logs: records of the logs, oldest first.
    """

    rule: Rule
    is_merge_on_read: bool = True
    base: Records | None = None
    logs: list[Record] = field(default_factory=list)

    def commit(self, changes: Iterable[Record], time: str) -> None:
        """Combine the changes of one commit by key, and write them to the log or the base file."""
        arrived = self._precombined([_stamped(change, time) for change in changes])
        if self.base is not None and self.is_merge_on_read:
            self.logs += map(_as_in_log, arrived)
        else:
            before, after = self.base or {}, self._onto_base(arrived)
            changed = {key: row for key, row in after.items() if row is not before.get(key)}
            after |= {key: _stamped(row, time) for key, row in changed.items()}
            self.base = after if after or self.base is not None else None

    def compact(self) -> None:
        """Write the merged rows as the new base file, and drop the logs."""
        if self.logs:
            self.base, self.logs = self.rows(), []

    def rows(self) -> Records:
        """Return the live rows: the logs are folded first, and then merged onto the base file."""
        return self._onto_base(folded(self.rule, self.logs).values())

    def _precombined(self, changes: Sequence[Record]) -> list[Record]:
        """Combine the changes of each key; partial rows are completed from the current rows."""
        if all(change.written is None for change in changes):
            return [*folded(self.rule, changes).values()]
        current = self.rows()
        outcome = folded(self.rule, [*current.values(), *changes])
        return [replace(r, written=None) for k, r in outcome.items() if r is not current.get(k)]

    def _onto_base(self, changes: Iterable[Record]) -> Records:
        outcome = folded(self.rule, [*(self.base or {}).values(), *changes])
        return {
            key: record if record.written is None else replace(record, written=None)
            for key, record in outcome.items()
            if not record.is_delete
        }


def _stamped(change: Record, time: str) -> Record:
    return replace(change, values={**change.values, COMMIT_TIME: time})


def _as_in_log(change: Record) -> Record:
    """Convert a delete to a record of a delete block, which has no columns."""
    if not change.is_delete:
        return change
    kind = ChangeKind.DELETE if change.kind is ChangeKind.FLAGGED_DELETE else change.kind
    return replace(change, kind=kind, values=dict.fromkeys(change.values), written=None)
