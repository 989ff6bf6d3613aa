"""Cleaning and archival never change the rows of retained commits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.config.table_properties import TableType
from lakemark.execution.runner import LocalRunner
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage
from tests.depth import examples
from tests.table_services import active_names, archived_names, as_of, make_plain, new_storage, since
from tests.tables import Row, commit, contents, writer

CLEANING = CleaningPolicy(commits=2)
ARCHIVAL = ArchivalPolicy(3, 4, delta_commits_to_compact=2)

rows = st.lists(
    st.builds(
        Row,
        st.sampled_from("abcd"),
        ts=st.integers(0, 9),
        v=st.integers(0, 99),
        region=st.just("north"),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda row: row.id,
)
steps = st.one_of(rows, rows, st.sampled_from(["compact", "clean", "archive", "restart"]))


@dataclass
class History:
    """A table, and the rows and instants that it has had."""

    storage: Storage
    to: TableWriter
    seen: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    commits: list[Instant] = field(default_factory=list)
    names: set[tuple[str, str]] = field(default_factory=set)

    def do(self, step: list[Row] | str) -> None:
        if isinstance(step, list):
            self._record(commit(self.to, step))
        else:
            _STEPS[step](self)
        self.names |= set(active_names(self.storage))

    def compact(self) -> None:
        for instant, _ in self.to.compact_if_due(CompactionPolicy(1), LocalRunner(1)):
            self._record(instant)

    def clean(self) -> None:
        past = {begin: since(self.to.table, begin) for begin in self._begins()}
        clean(self.to.table, CLEANING)
        now = {begin: since(self.to.table, begin) for begin in self._begins()}
        assert now == past

    def archive(self) -> None:
        archive(self.to.table, ARCHIVAL, CLEANING)

    def restart(self) -> None:
        self.to = writer(self.storage)

    def check(self) -> None:
        assert contents(self.storage) == self.seen[self.commits[-1].requested_at]
        fresh = writer(self.storage).table
        for kept in self._retained():
            assert as_of(fresh, kept.requested_at) == self.seen[kept.requested_at]
        assert fresh.view().latest_slices() == self.to.table.view().latest_slices()
        assert fresh.timeline.instants == self.to.table.timeline.instants
        archived = archived_names(self.storage)
        assert len(set(archived)) == len(archived), "an instant was archived twice"
        assert not set(archived) & set(active_names(self.storage))
        assert self.names == {*archived, *active_names(self.storage)}

    def _record(self, instant: Instant) -> None:
        self.commits.append(instant)
        self.seen[instant.requested_at] = contents(self.storage)

    def _retained(self) -> list[Instant]:
        return self.commits[-CLEANING.commits :]

    def _begins(self) -> list[str]:
        names_completion = self.to.table.version is not FormatVersion.V6
        retained = self._retained()
        return [(i.completed_at if names_completion else i.requested_at) or "" for i in retained]


_STEPS: dict[str, Callable[[History], None]] = {
    "compact": History.compact,
    "clean": History.clean,
    "archive": History.archive,
    "restart": History.restart,
}


@pytest.mark.parametrize(
    ("table_type", "version"),
    [
        (TableType.MERGE_ON_READ, FormatVersion.V9),
        (TableType.COPY_ON_WRITE, FormatVersion.V9),
        (TableType.MERGE_ON_READ, FormatVersion.V6),
    ],
)
@settings(deadline=None, max_examples=examples(8))
@given(st.lists(steps, min_size=6, max_size=16))
def test_services_do_not_change_the_rows_of_retained_commits(
    table_type: TableType, version: FormatVersion, drawn: list[list[Row] | str]
) -> None:
    storage = new_storage()
    make_plain(storage, table_type, version)
    history = History(storage, writer(storage))
    history.do([Row("a", 1, 1), Row("b", 1, 1)])
    for step in drawn:
        history.do(step)
        history.check()


@pytest.mark.parametrize("table_type", TableType)
@pytest.mark.parametrize("retention", [Retention.COMMITS, Retention.FILE_VERSIONS])
def test_number_of_files_stays_bounded_under_every_policy(
    table_type: TableType, retention: Retention
) -> None:
    storage = new_storage()
    make_plain(storage, table_type)
    to = writer(storage)
    policy = CleaningPolicy(retention, commits=2, file_versions=2)
    sizes = []
    for number in range(16):
        commit(to, [Row("a", number, number), Row("b", number, -number)])
        to.compact_if_due(CompactionPolicy(2), LocalRunner(1))
        clean(to.table, policy)
        archive(to.table, ARCHIVAL, policy)
        sizes.append(len([i for i in storage.list_tree("") if "history" not in i.path]))
        assert contents(storage) == {"a": (number, number), "b": (number, -number)}
    assert max(sizes[8:]) <= max(sizes[:8]) + 3, sizes
