"""Random histories of a merge-on-read table, and a model of the expected rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from uuid import uuid4

from hypothesis import strategies as st

from lakemark.config.merge_settings import merge_settings
from lakemark.execution.runner import LocalRunner
from lakemark.merge.table_merger import table_merger
from lakemark.model.changes import ChangeKind
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.table_writer import TableWriter
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.services.compaction import request_compaction
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation, open_storage
from tests.tables import Row, commit, make, writer

KEYS = tuple("abcdef")
_KINDS = st.sampled_from([ChangeKind.UPSERT, ChangeKind.UPSERT, ChangeKind.FLAGGED_DELETE])

#: Changes to records in the order of arrival; all payloads differ.
Batch = Sequence[Row]


class Service(Enum):
    """A step that may occur between two commits."""

    PLAN_COMPACTION = "plan"
    FINISH_COMPACTION = "finish"


@dataclass(frozen=True)
class History:
    """A table and its history.

    Attributes:
        table: the table, newly opened.
        batches: changes of each commit; the first batch creates every file group.
        instants: the instants of the commits.
    """

    table: OpenTable
    batches: list[Batch]
    instants: list[Instant]

    @property
    def reader(self) -> FileGroupReader:
        schema = self.table.schema
        assert schema is not None
        merger = table_merger(merge_settings(self.table.properties))
        return FileGroupReader(self.table.storage, schema, merger)


@st.composite
def batches(draw: st.DrawFn, kinds: st.SearchStrategy[ChangeKind] = _KINDS) -> list[Batch]:
    """Draw the batches: the first has all keys, and up to three others have some of the keys."""
    first = [Row(key) for key in KEYS]
    changes = st.tuples(st.sampled_from(KEYS), st.integers(1, 3), kinds)
    drawn = draw(st.lists(st.lists(changes, min_size=1, max_size=4), max_size=3))
    payloads = iter(range(1, 1000))
    return [
        first,
        *([Row(key, ts, next(payloads), kind=kind) for key, ts, kind in some] for some in drawn),
    ]


@st.composite
def compacted(draw: st.DrawFn) -> list[Batch | Service]:
    """Draw batches of upserts, and compactions that are planned and completed between them.

    There are no deletes: once a compaction has dropped one, an older change wins.
    """
    steps: list[Batch | Service] = []
    for batch in draw(batches(st.just(ChangeKind.UPSERT))):
        steps += [batch, *draw(st.lists(st.sampled_from(Service), max_size=2))]
    return steps


def write(steps: Sequence[Batch | Service]) -> History:
    """Run the steps on a new table."""
    location = StorageLocation(f"memory://{uuid4().hex}/lake")
    storage = open_storage(location)
    make(storage)
    to = writer(storage)
    instants = [instant for step in steps if (instant := _take(to, step)) is not None]
    sent = [step for step in steps if not isinstance(step, Service)]
    return History(open_table(location), sent, instants)


def outcome(sent: Iterable[Batch]) -> dict[str, Row]:
    """Return the change of each key that has the largest ordering value; if equal, the last one."""
    newest: dict[str, Row] = {}
    for batch in sent:
        for row in batch:
            if row.id not in newest or row.ts >= newest[row.id].ts:
                newest[row.id] = row
    return newest


def live(rows: dict[str, Row]) -> dict[str, int]:
    """Return the payloads of the records that are not deleted."""
    return {key: row.v for key, row in rows.items() if row.kind is ChangeKind.UPSERT}


def _take(to: TableWriter, step: Batch | Service) -> Instant | None:
    if step is Service.PLAN_COMPACTION:
        _plan_compaction(to)
    elif step is Service.FINISH_COMPACTION:
        to.compact_if_due(CompactionPolicy(after_commits=1000), LocalRunner())
    elif not isinstance(step, Service):
        return commit(to, step)
    return None


def _plan_compaction(to: TableWriter) -> None:
    view = to.table.view()
    free = [s for s in view.slices_for_writing() if s.group not in view.compactions]
    requested = request_compaction(to.table.context, lambda timeline: free)
    if requested is not None:
        to.table.snapshot.carry_compaction_request(*requested)
