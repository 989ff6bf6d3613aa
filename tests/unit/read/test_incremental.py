from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.config import keys
from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig
from lakemark.model.action import Action, State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import COMMIT_TIME
from lakemark.operations.clean import clean
from lakemark.operations.open_table import open_table
from lakemark.read import incremental
from lakemark.read.instant_range import InstantRange
from lakemark.read.queries import Incremental
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.properties_file import replace_properties
from lakemark.timeline.layout import LayoutV1
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.transaction import Transaction
from lakemark.view.file_system_view import FileSystemView
from tests import plans
from tests.depth import examples
from tests.table_services import make_plain, new_storage, since
from tests.tables import Row, commit, writer
from tests.unit.read.histories import (
    Batch,
    History,
    Service,
    batches,
    compacted,
    live,
    outcome,
    write,
)


@pytest.mark.parametrize("begin", ["earliest", "EARLIEST", "0", "000", "00000000000000"])
def test_begin_has_several_spellings(begin: str) -> None:
    assert InstantRange.of(begin) == InstantRange("")


def test_range_excludes_its_begin_and_includes_its_end() -> None:
    instant_range = InstantRange.of("2026-01-02", "2026-01-03 00:00:00.000")
    inside = ["20260102000000001", "20260103000000000"]
    outside = ["20260102000000000", "20260103000000001"]
    assert all(map(instant_range.contains, inside))
    assert not any(map(instant_range.contains, outside))


def test_range_without_begin_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="is not a time"):
        InstantRange.of("")


def test_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="ends at 2026-01-02"):
        InstantRange.of("2026-01-03", "2026-01-02")


@settings(max_examples=examples(12), deadline=None)
@given(batches(), st.data())
def test_incremental_query_returns_the_merged_changes_of_the_range(
    sent: list[Batch], data: st.DataObject
) -> None:
    history = write(sent)
    begin = data.draw(st.integers(0, len(sent)), "commits before the instant_range")
    end = data.draw(st.integers(max(begin, 1), len(sent)), "commits until its end")
    times = ["000", *(str(instant.completed_at) for instant in history.instants)]
    instant_range = InstantRange.of(times[begin], times[end])

    plan = incremental.plan(history.table.view(), history.table.store, instant_range)
    expected = [instant.requested_at for instant in history.instants[begin:end]]
    assert list(plan.instants) == expected
    assert _payloads(history, plan) == live(outcome(sent[begin:end]))


@settings(max_examples=examples(12), deadline=None)
@given(compacted(), st.data())
def test_compactions_and_later_commits_do_not_change_the_result(
    steps: list[Batch | Service], data: st.DataObject
) -> None:
    steps = [s if isinstance(s, Service) else [replace(row, ts=0) for row in s] for s in steps]
    history = write(steps)
    commits = len(history.instants)
    begin = data.draw(st.integers(0, commits - 1), "commits before the instant_range")
    end = data.draw(st.integers(begin + 1, commits), "commits until its end")
    times = ["000", *(str(instant.completed_at) for instant in history.instants)]
    plan = incremental.plan(
        history.table.view(), history.table.store, InstantRange.of(times[begin], times[end])
    )
    assert _payloads(history, plan) == live(outcome(history.batches[begin:end]))


def test_late_row_that_lost_is_omitted_if_the_range_has_the_compacted_winner() -> None:
    compaction = [Service.PLAN_COMPACTION, Service.FINISH_COMPACTION]
    first, late = [Row("a", 5, v=1), Row("b", 5, v=2)], [Row("a", 1, v=3), Row("b", 9, v=4)]
    history = write([first, [Row("a", 6, v=5)], *compaction, late])
    whole = [str(instant.completed_at) for instant in history.table.timeline.completed()]
    store, view = history.table.store, history.table.view()
    with_compaction = incremental.plan(view, store, InstantRange.of(whole[1]))
    only_late = incremental.plan(view, store, InstantRange.of(whole[2]))
    assert _payloads(history, with_compaction) == {"b": 4}
    assert _payloads(history, only_late) == {"a": 3, "b": 4}


def test_cleaning_of_compacted_slices_does_not_change_the_result() -> None:
    compaction = [Service.PLAN_COMPACTION, Service.FINISH_COMPACTION]
    history = write([[Row("a"), Row("b")], [Row("a", 1, v=3)], *compaction, [Row("b", 1, v=4)]])
    table = history.table
    commits = table.timeline.completed()
    instant_range = InstantRange.of(str(commits[0].completed_at), str(commits[2].completed_at))
    before = incremental.plan(table.view(), table.store, instant_range)
    cleaned = clean(table, CleaningPolicy(commits=1))
    assert any(one.plan.files for one in cleaned)

    table = open_table(table.location)
    plan = incremental.plan(table.view(), table.store, instant_range, may_scan_fully=False)
    assert plan.instants == before.instants
    assert _payloads(replace(history, table=table), plan) == {"a": 3}


def test_replacement_after_the_end_does_not_hide_rows_of_the_range() -> None:
    history = write([[Row("a"), Row("b")]])
    to = writer(history.table.storage)
    replacing, _ = Transaction.begin(to.table.context, Action.REPLACE_COMMIT, to.table.refresh)
    written = commit(to, [Row("a", 1, v=7)])
    metadata = to.table.store.read_commit(written)
    (stat,) = metadata.write_stats
    replaced = {str(stat.partition_path): (stat.file_id,)}
    replacing.commit(replace(metadata, write_stats=(), replaced_file_ids=replaced))
    table = open_table(to.table.location)
    assert table.view().replaced
    instant_range = InstantRange.of(
        str(history.instants[0].completed_at), str(written.completed_at)
    )
    plan = incremental.plan(table.view(), table.store, instant_range)
    assert _payloads(replace(history, table=table), plan) == {"a": 7}


def test_replacement_in_the_range_hides_the_replaced_rows() -> None:
    history = write([[Row("a"), Row("b")]])
    to = writer(history.table.storage)
    written = commit(to, [Row("a", 1, v=7)])
    metadata = to.table.store.read_commit(written)
    (stat,) = metadata.write_stats
    replacing, _ = Transaction.begin(to.table.context, Action.REPLACE_COMMIT, to.table.refresh)
    replaced = {str(stat.partition_path): (stat.file_id,)}
    replacing.commit(replace(metadata, write_stats=(), replaced_file_ids=replaced))
    table = open_table(to.table.location)
    begin = str(history.instants[0].completed_at)
    plan = incremental.plan(table.view(), table.store, InstantRange.of(begin))
    assert written.requested_at in plan.instants
    assert _payloads(replace(history, table=table), plan) == {}


def test_blocks_of_version_6_are_visible_until_the_end_of_the_range() -> None:
    """A query of a range omits later blocks of a log, which Apache Hudi may append in version 6."""
    storage = new_storage()
    make_plain(storage, version=FormatVersion.V6)
    first, second, _ = (commit(writer(storage), [Row("a", ts, v=ts)]) for ts in (1, 2, 3))
    (file_slice,) = writer(storage).table.view().latest_slices()
    second_log, third_log = (log.path for log in file_slice.logs)
    storage.put(second_log, storage.read(second_log) + storage.read(third_log))
    found = since(writer(storage).table, first.requested_at, second.requested_at)
    assert found == [("a", 2)]


def test_only_requested_columns_are_returned() -> None:
    history = write([[Row("a")], [Row("b", 1, v=7)]])
    begin = str(history.instants[0].completed_at)
    plan = incremental.plan(history.table.view(), history.table.store, InstantRange.of(begin))
    (batch,) = plans.read(plan, history.reader, ["v"])
    assert batch.to_pydict() == {"v": [7]}
    (batch,) = plans.read(plan, history.reader, [COMMIT_TIME])
    assert batch.to_pydict() == {COMMIT_TIME: [history.instants[1].requested_at]}


def test_incremental_query_without_meta_columns_is_refused() -> None:
    table = write([[Row("a")]]).table
    values = {**table.properties.values, keys.POPULATE_META_FIELDS: "false"}
    replace_properties(table.storage, table.properties, TableProperties(values), lambda: None)
    nameless = open_table(table.location)
    with pytest.raises(InvalidConfig, match=COMMIT_TIME):
        nameless.scan(Incremental("earliest"))


@pytest.mark.parametrize(
    ("pending_at", "end"),
    [("20260101000000000", None), ("20260101000001500", "20260101000002000")],
    ids=["older than the last commit", "before the end"],
)
def test_pending_commit_in_a_range_of_version_6_is_refused_by_name(
    pending_at: str, end: str | None
) -> None:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/lake"))
    timeline = Timeline.of(
        [
            Instant(pending_at, Action.DELTA_COMMIT, State.INFLIGHT),
            Instant("20260101000001000", Action.DELTA_COMMIT, State.COMPLETED, "20260101000002000"),
        ],
        has_history=False,
    )
    view = FileSystemView.of({}, timeline, version=FormatVersion.V6)
    store = TimelineStore(storage, LayoutV1())
    with pytest.raises(InvalidConfig, match=rf"{pending_at}.*is pending"):
        incremental.plan(view, store, InstantRange.of("earliest", end))


def test_empty_range_reads_nothing() -> None:
    history = write([[Row("a")]])
    plan = incremental.plan(
        history.table.view(), history.table.store, InstantRange.of("2999-01-01")
    )
    assert (plan.slices, plan.instants) == ((), ())
    assert list(plans.read(plan, history.reader)) == []


def _payloads(history: History, plan: incremental.IncrementalPlan) -> dict[str, int]:
    batches_read = plans.read(plan, history.reader, ["id", "v"])
    rows = [row for batch in batches_read for row in batch.to_pylist()]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["v"] for row in rows}
