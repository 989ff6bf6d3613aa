"""A model of a file slice, record by record: the expected result of queries and compactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from lakemark.model.changes import ChangeKind
from lakemark.model.meta_columns import COMMIT_TIME
from tests.merging.rules import Record, Records, Rule, folded


@dataclass
class SliceModel:
    """Base rows (None: no file yet), and the records of the logs, oldest first."""

    rule: Rule
    is_merge_on_read: bool = True
    base: Records | None = None
    logs: list[Record] = field(default_factory=list)

    def commit(self, changes: Iterable[Record], time: str) -> None:
        """Changes of one commit, precombined, go to the log, or immediately to the base file."""
        arrived = self._precombined([_stamped(change, time) for change in changes])
        if self.base is not None and self.is_merge_on_read:
            self.logs += map(_as_in_log, arrived)
        else:
            before, after = self.base or {}, self._onto_base(arrived)
            changed = {key: row for key, row in after.items() if row is not before.get(key)}
            after |= {key: _stamped(row, time) for key, row in changed.items()}
            self.base = after if after or self.base is not None else None

    def compact(self) -> None:
        """The merged rows become the base file, and the logs are dropped."""
        if self.logs:
            self.base, self.logs = self.rows(), []

    def rows(self) -> Records:
        """The live rows: the logs folded first, then merged onto the base file."""
        return self._onto_base(folded(self.rule, self.logs).values())

    def _precombined(self, changes: Sequence[Record]) -> list[Record]:
        """One change of each key; partial rows are completed from the current rows."""
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
    """Every delete becomes a record of a delete block, which has no columns."""
    if not change.is_delete:
        return change
    kind = ChangeKind.DELETE if change.kind is ChangeKind.FLAGGED_DELETE else change.kind
    return replace(change, kind=kind, values=dict.fromkeys(change.values), written=None)
