"""Cleans are planned, continued and recorded correctly, also after a process died."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lakemark.codec import avro_container
from lakemark.config.table_properties import TableType
from lakemark.errors import InvalidConfig, Refused
from lakemark.metadata.bootstrap import drop_metadata_table
from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.model.restore_plan import RestorePlan
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.write import RowWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning import claim, request
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.savepoint import check_not_cleaned
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.content import encode_restore_plan
from lakemark.transaction.multi_writer import MultiWriter
from tests.table_services import as_of, make_plain, new_storage
from tests.tables import Row, commit, contents, data_files, make, write_files, writer

ONE_COMMIT = CleaningPolicy(commits=1)


def expired() -> TableWriter:
    """Create a table from which a clean would delete files."""
    storage = new_storage()
    make_plain(storage, TableType.COPY_ON_WRITE)
    to = writer(storage)
    for number in range(4):
        commit(to, [Row("a", number, number)])
    return to


def test_nothing_is_planned_beside_a_plan() -> None:
    table = expired().table
    requested = request(table.context, lambda _: table.view(), ONE_COMMIT)
    assert requested is not None
    assert request(table.context, lambda _: table.view(), ONE_COMMIT) is None
    fresh = writer(table.storage).table
    assert [one.instant.requested_at for one in clean(fresh, ONE_COMMIT)] == [
        requested[0].requested_at
    ]


def test_where_writers_share_the_table_every_clock_passes_the_plans_time() -> None:
    table = expired().table
    context = replace(table.context, multi_writer=MultiWriter(clock_skew_ms=300))
    assert request(context, lambda _: table.view(), ONE_COMMIT) is not None
    planned_at = table.store.load().pending(Action.CLEAN)[0].requested_at
    assert datetime.now(UTC) - table.store.clock.parse(planned_at) >= timedelta(milliseconds=300)


@pytest.mark.parametrize(("content", "is_inflight"), [(b"", False), (b"", True), (None, True)])
def test_a_pending_clean_whose_plan_is_empty_or_missing_is_removed_and_planned_again(
    content: bytes | None, is_inflight: bool
) -> None:
    table = expired().table
    before = contents(table.storage)
    requested = request(table.context, lambda _: table.view(), ONE_COMMIT)
    assert requested is not None
    if is_inflight:
        table.store.create(requested[0].inflight())
    table.storage.delete([table.store.path_of(requested[0])])
    if content is not None:
        table.storage.put(table.store.path_of(requested[0]), content)
    fresh = writer(table.storage).table
    (done,) = clean(fresh, ONE_COMMIT)
    assert done.instant.requested_at > requested[0].requested_at
    assert sorted(done.plan.paths) == sorted(requested[1].paths)
    assert not fresh.timeline.pending()
    assert contents(table.storage) == before


def test_a_partition_that_a_plan_of_apache_hudi_drops_may_be_written_again() -> None:
    """The metadata table goes on listing the partition, so that no writer creates its metafile."""
    storage = new_storage()
    make(storage)
    to = writer(storage)
    commit(to, [Row("a", 1, 1), Row("b", 1, 1, "south")])
    RowWriter(to.table).delete_partitions(lambda _: ["north"])
    commit(to, [Row("b", 2, 2, "south")])
    requested = request(to.table.context, to.table.view_at, ONE_COMMIT)
    assert requested is not None
    record = {**requested[1].to_record(storage.location.url), "partitionsToBeDeleted": ["north"]}
    plan = avro_container.encode("HoodieCleanerPlan", record)
    storage.put(to.table.store.path_of(requested[0]), plan)
    assert clean(writer(storage).table, ONE_COMMIT)
    commit(writer(storage), [Row("c", 1, 3)])
    before = contents(storage)
    assert set(before) == {"b", "c"}
    drop_metadata_table(storage, read_properties(storage), lambda: None)
    assert contents(storage) == before


def test_a_plan_of_another_writer_that_is_being_written_is_not_removed() -> None:
    table = expired().table
    at = table.store.clock.next_instant(table.store.load().newest_time)
    pending = Instant(at, Action.CLEAN, State.REQUESTED)
    table.store.create(pending)
    shared = replace(table.context, multi_writer=MultiWriter())
    assert claim(shared, pending) is None
    assert table.store.load().find(at) == pending
    assert claim(table.context, pending) is None
    assert table.store.load().find(at) is None


def test_a_clean_that_was_executed_in_part_is_completed_though_a_later_batch_was_undone() -> None:
    """The clean is completed, because only it records which files it deleted.

    Without that record, a restore would bring back an incomplete state.
    """
    to = expired()
    table = to.table
    oldest = table.timeline.completed(Action.COMMIT)[0].requested_at
    requested = request(table.context, lambda _: table.view(), ONE_COMMIT)
    assert requested is not None
    table.store.create(requested[0].inflight())
    table.context.delete_files(requested[1].paths)
    write_files(to, [Row("a", 9, 9)])
    to.abandon()
    fresh = writer(table.storage).table
    clean(fresh, ONE_COMMIT)
    with pytest.raises(Refused, match="clean"):
        check_not_cleaned(fresh.store.load(), fresh.store, oldest)
    (done,) = fresh.store.load().completed(Action.CLEAN)
    assert done.requested_at == requested[0].requested_at
    assert contents(table.storage) == {"a": (3, 3)}


def test_a_completed_clean_without_content_is_known_by_its_plan() -> None:
    table = expired().table
    (done,) = clean(table, ONE_COMMIT)
    (said,) = (table.store.read_clean(i) for i in table.timeline.completed(Action.CLEAN))
    table.storage.put(table.store.path_of(done.instant), b"")
    fresh = writer(table.storage).table
    assert fresh.store.read_clean(done.instant) == said
    assert clean(fresh, ONE_COMMIT) == []
    commit(writer(table.storage), [Row("a", 9, 9)])
    assert len(clean(writer(table.storage).table, ONE_COMMIT)) == 1


def test_a_completed_clean_that_is_lost_hides_no_row_and_refuses_the_past() -> None:
    to = expired()
    table, commits = to.table, to.table.timeline.completed(Action.COMMIT)
    (done,) = clean(table, ONE_COMMIT)
    before = contents(table.storage)
    table.storage.put(table.store.path_of(done.instant), b"")
    requested = Instant(done.instant.requested_at, Action.CLEAN, State.REQUESTED)
    table.storage.put(table.store.path_of(requested), b"")
    fresh = writer(table.storage).table
    assert fresh.store.read_clean(done.instant) is None
    assert contents(table.storage) == before
    assert clean(fresh, ONE_COMMIT) == []
    with pytest.raises(Refused, match="deleted is lost"):
        check_not_cleaned(fresh.timeline, fresh.store, commits[-1].requested_at)
    with pytest.raises(InvalidConfig, match="was cleaned"):
        as_of(fresh, commits[0].requested_at)
    new = commit(writer(table.storage), [Row("a", 9, 9)])
    fresh.refresh()
    assert as_of(fresh, new.requested_at) == {"a": (9, 9)}
    assert len(clean(fresh, ONE_COMMIT)) == 1


def test_nothing_goes_while_a_restore_is_pending() -> None:
    table = expired().table
    assert request(table.context, lambda _: table.view(), ONE_COMMIT) is not None
    at = table.store.clock.next_instant(table.store.load().newest_time)
    pending = Instant(at, Action.RESTORE, State.REQUESTED)
    table.store.create(pending, encode_restore_plan(RestorePlan(at, ())))
    fresh, files = writer(table.storage).table, data_files(table.storage)
    with pytest.raises(Refused, match="is pending; complete it first"):
        clean(fresh, ONE_COMMIT)
    with pytest.raises(Refused, match="is pending; complete it first"):
        archive(fresh, ArchivalPolicy(1, 2), None)
    assert data_files(table.storage) == files
