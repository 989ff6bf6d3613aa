"""After any history the metadata table agrees with the files, and queries return the same rows."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lakemark.config.table_properties import TableType
from lakemark.execution.runner import LocalRunner
from lakemark.model.changes import ChangeKind
from lakemark.operations.clean import clean
from lakemark.operations.metadata_table import drop_metadata_table, metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage, StorageLocation, open_storage
from tests.depth import examples
from tests.storages import FaultyStorage, SimulatedCrash
from tests.tables import INDEXES, Row, commit, contents, data_files, make, write_files, writer

KEYS = st.sampled_from("abcdefgh")
KINDS = st.sampled_from([ChangeKind.UPSERT, ChangeKind.UPSERT, ChangeKind.DELETE])


def _row(key: str, ts: int, v: int, kind: ChangeKind) -> Row:
    """Create a row; the key decides its partition."""
    return Row(key, ts, v, "north" if key < "f" else "south", kind)


ROWS = st.lists(
    st.builds(_row, KEYS, st.integers(0, 9), st.integers(-5, 5), KINDS),
    min_size=1,
    max_size=6,
    unique_by=lambda row: row.id,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), ROWS),
        st.tuples(st.just("abandon"), ROWS),
        st.tuples(st.just("crash"), st.tuples(ROWS, st.integers(0, 60))),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("clean"), st.none()),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=examples(8), deadline=None, phases=[Phase.explicit, Phase.generate])
@given(STEPS, st.sampled_from(TableType), st.sampled_from([(), INDEXES]))
def test_metadata_table_agrees_with_the_files_after_any_history(
    steps: list[tuple[str, object]], table_type: TableType, indexes: tuple[str, ...]
) -> None:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/history"))
    make(storage, table_type, indexes)
    table = writer(storage)
    commit(table, [Row("a", 1, 1)])
    for step, given_ in steps:
        table = _DO[step](table, storage, given_)
        _assert_consistent(table)
    seen = contents(storage)
    drop_metadata_table(writer(storage).table)
    assert contents(storage) == seen


def _assert_consistent(to: TableWriter) -> None:
    assert metadata_differences(to.table) == []
    listed = {
        file.path
        for group in writer(to.table.storage).table.view().file_groups()
        for file in group.files.values()
    }
    assert listed <= set(data_files(to.table.storage))


def _commit(to: TableWriter, storage: Storage, rows: list[Row]) -> TableWriter:
    commit(to, rows)
    return to


def _abandon(to: TableWriter, storage: Storage, rows: list[Row]) -> TableWriter:
    write_files(to, rows)
    to.abandon()
    return to


def _crash(to: TableWriter, storage: Storage, given_: tuple[list[Row], int]) -> TableWriter:
    rows, nth = given_
    try:
        commit(writer(FaultyStorage(storage, nth, "after")), rows)
    except SimulatedCrash:
        storage.delete([info.path for info in storage.list_tree(".hoodie/.locks")])
    return _restart(to, storage, None)


def _compact(to: TableWriter, storage: Storage, given_: None) -> TableWriter:
    to.compact_if_due(CompactionPolicy(after_commits=1), LocalRunner(1))
    return to


def _clean(to: TableWriter, storage: Storage, given_: None) -> TableWriter:
    clean(to.table, CleaningPolicy(commits=1))
    return to


def _restart(to: TableWriter, storage: Storage, given_: None) -> TableWriter:
    restarted = writer(storage)
    restarted.recover()
    return restarted


_DO: dict[str, Callable[..., TableWriter]] = {
    "commit": _commit,
    "abandon": _abandon,
    "crash": _crash,
    "compact": _compact,
    "clean": _clean,
    "restart": _restart,
}
