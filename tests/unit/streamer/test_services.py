"""Services run in order between two batches, and read nothing if none is due."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from checkpoints import commit_keys
from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.config.table_properties import TableProperties
from lakemark.errors import StorageUnavailable
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from lakemark.model.action import COMMITS, Action
from lakemark.model.commit_metadata import CommitMetadata, Operation
from lakemark.model.instant import Instant
from lakemark.operations.compact import Planned
from lakemark.operations.compact_logs import (
    compact_logs,
    execute_log_compaction,
    schedule_log_compaction,
)
from lakemark.operations.metadata_table import (
    keep_metadata_table,
    maintain_metadata_table,
    metadata_differences,
)
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.metadata_table_services import MetadataPolicies
from lakemark.services.savepoint import create_savepoint
from lakemark.storage.properties_file import replace_properties
from lakemark.timeline.layout import LayoutV2
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.multi_writer import MultiWriter
from streamer.events import (
    CompactionCompleted,
    Event,
    ServiceCompleted,
    ServiceFailed,
)
from streamer.services import ServicePolicies, TableServices
from tests.storages import CountingStorage
from tests.table_services import archived_names, make_plain, new_storage
from tests.tables import Row, commit, contents, make, reopened, writer

#: The age of a plan that no writer begins any more.
OLD_S = 300.0

METADATA_TIMELINE = ".hoodie/metadata/.hoodie/timeline"
POLICIES = ServicePolicies(
    CompactionPolicy(2), CleaningPolicy(commits=2), ArchivalPolicy(3, 4, delta_commits_to_compact=2)
)


def table() -> tuple[CountingStorage, TableWriter]:
    storage = CountingStorage(new_storage())
    make_plain(storage)
    return storage, writer(storage)


def run(to: TableWriter, policies: ServicePolicies = POLICIES) -> list[str]:
    """Run the services, and return those that did something, in order."""
    done: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, CompactionCompleted):
            done.append("compaction")
        elif isinstance(event, ServiceCompleted):
            done.append(event.service)
            assert event.summary
            assert event.seconds >= 0

    TableServices([to], policies, LocalRunner(1), listen).run()
    return done


def log_sizes(to: TableWriter) -> list[int]:
    """Return the number of logs in each file slice."""
    to.table.refresh()
    return [len(one.logs) for one in to.table.view().latest_slices()]


def plan_of_others(to: TableWriter) -> None:
    assert schedule_log_compaction(reopened(to).table, min_logs=2) is not None


def age_plan(to: TableWriter, age_s: float = OLD_S) -> Instant:
    """Let the pending log compaction be older, and return it."""
    to.table.refresh()
    storage, store = to.table.storage, to.table.store
    (planned,) = to.table.timeline.pending(Action.LOG_COMPACTION)
    older = replace(planned, requested_at=_time_before(to, age_s))
    store.create(older, storage.read(store.path_of(planned)))
    storage.delete([store.path_of(planned)])
    to.table.refresh()
    return older


def _time_before(to: TableWriter, age_s: float) -> str:
    return to.table.store.clock.format(datetime.now(UTC) - timedelta(seconds=age_s))


def operations_of(to: TableWriter) -> list[str]:
    to.table.refresh()
    commits = to.table.timeline.completed(Action.DELTA_COMMIT)
    return [to.table.store.read_commit(instant).operation for instant in commits]


def test_logs_are_merged_after_so_many_delta_commits() -> None:
    _, to = table()
    policies = ServicePolicies(CompactionPolicy(20), min_logs=2)
    commit(to, [Row("a", 0, 0)])
    done = []
    for number in range(1, 6):
        commit(to, [Row("a", number, number)])
        done.append(run(to, policies))
    merged, none = ["log_compaction"], list[str]()
    assert done == [none, merged, none, merged, none], "after two logs, but not after each commit"
    assert contents(to.table.storage) == {"a": (5, 5)}
    assert metadata_differences(to.table) == []


def test_logs_that_are_not_compacted_are_read_only_if_they_have_changed() -> None:
    storage, to = table()
    policies = ServicePolicies(CompactionPolicy(50), min_logs=2)
    services = TableServices([to], policies, LocalRunner(1), lambda _: None)
    for number in range(3):
        commit(to, [Row("a", number, number), Row("b", number, number, region="south")])
        services.run()
    assert log_sizes(to) == [3, 3], "two logs, and the one into which they were merged"
    due = 0
    for number in range(3, 8):
        commit(to, [Row(f"c{number}", 0, 0, region=f"new{number}")])
        storage.forget()
        services.run()
        due += storage.requests != []
    assert due == 1, "the logs were read when a log compaction was due for the first time"
    commit(to, [Row("a", 8, 8)])
    storage.forget()
    services.run()
    assert operations_of(to)[-1] == Operation.LOG_COMPACT
    opened = [storage.count("open", under=region) for region in ("north", "south")]
    assert (opened[0] > 0, opened[1]) == (True, 0), "the logs in the south have not changed"
    assert contents(storage)["a"] == (8, 8)


def test_pending_log_compaction_of_another_writer_is_executed() -> None:
    _, to = table()
    for number in range(4):
        commit(to, [Row("a", number, number)])
    plan_of_others(to)
    to.table.refresh()
    assert run(to, ServicePolicies(CompactionPolicy(20))) == [], "the other writer may begin"
    age_plan(to)
    assert run(to, ServicePolicies()) == [], "a pipeline that does not compact"
    assert run(to, ServicePolicies(CompactionPolicy(20))) == ["log_compaction"]
    assert not to.table.timeline.pending()
    assert operations_of(to).count(Operation.LOG_COMPACT) == 1
    assert contents(to.table.storage) == {"a": (3, 3)}


def test_log_compaction_that_apache_hudi_executes_is_never_touched() -> None:
    """Apache Hudi emits no heartbeat for a log compaction."""
    _, to = table()
    for number in range(4):
        commit(to, [Row("a", number, number)])
    plan_of_others(to)
    planned = age_plan(to)
    to.table.store.create(planned.inflight(), b"")
    to.table.refresh()
    assert run(to, ServicePolicies(CompactionPolicy(20))) == []
    assert run(to, ServicePolicies(CompactionPolicy(1))) == ["compaction"]
    assert compact_logs(to.table, LocalRunner(1)) == [], "it is out of date"
    assert to.table.store.load().pending() == (planned.inflight(),), "only an operator removes it"


def test_log_compaction_that_fails_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, to = table()
    for number in range(4):
        commit(to, [Row("a", number, number)])
    plan_of_others(to)
    second = age_plan(to, OLD_S)
    content = to.table.storage.read(to.table.store.path_of(second))
    first = replace(second, requested_at=_time_before(to, 2 * OLD_S))
    to.table.store.create(first, content)
    to.table.refresh()

    def execute(
        table: OpenTable, planned: Planned, runner: Runner
    ) -> list[tuple[Instant, CommitMetadata]]:
        if planned[0].requested_at == first.requested_at:
            message = "a file is damaged"
            raise StorageUnavailable(message)
        return execute_log_compaction(table, planned, runner)

    monkeypatch.setattr("streamer.services.execute_log_compaction", execute)
    assert run(to, ServicePolicies(CompactionPolicy(20))) == ["log_compaction"]


def test_compaction_replaces_a_pending_log_compaction() -> None:
    _, to = table()
    for number in range(4):
        commit(to, [Row("a", number, number)])
    plan_of_others(to)
    age_plan(to)
    assert run(to, ServicePolicies(CompactionPolicy(1))) == ["compaction"]
    assert not to.table.timeline.pending(), "the plan is out of date"
    assert log_sizes(to) == [0]


def test_log_compaction_that_the_table_forbids_is_reported_and_kept() -> None:
    _, to = table()
    for number in range(4):
        commit(to, [Row("a", number, number)])
    plan_of_others(to)
    age_plan(to)
    before = to.table.properties
    logged = TableProperties({**before.values, "hoodie.table.cdc.enabled": "true"})
    replace_properties(to.table.storage, before, logged, lambda: None)
    to = writer(to.table.storage)
    events: list[Event] = []
    policies = ServicePolicies(CompactionPolicy(20))
    services = TableServices([to], policies, LocalRunner(1), events.append)
    services.run()
    services.run()
    (failed,) = (event for event in events if isinstance(event, ServiceFailed))
    assert (failed.service, failed.error_type) == ("log_compaction", "Unsupported")
    assert len(to.table.timeline.pending(Action.LOG_COMPACTION)) == 1


def test_tables_are_compacted_then_cleaned_then_archived() -> None:
    _, to = table()
    done = []
    for number in range(10):
        commit(to, [Row("a", number, number)])
        done.append(run(to))
    assert done[:3] == [[], ["compaction"], []]
    assert ["compaction", "cleaning", "archival"] in done
    assert run(to) == []


def test_nothing_is_read_when_nothing_is_due() -> None:
    storage, to = table()
    for number in range(9):
        commit(to, [Row("a", number, number)])
        run(to)
    newest = to.table.timeline.completed(Action.DELTA_COMMIT)[-1].requested_at
    create_savepoint(to.table.context, newest, lambda *_: to.table.view().latest_slices(), "", "")
    to.table.refresh()
    commit(to, [Row("a", 9, 9)])
    run(to)
    idle = 0
    for number in range(10, 20):
        commit(to, [Row("a", number, number)])
        storage.forget()
        done = run(to)
        if not done:
            idle += 1
            assert storage.requests == []
        elif done == ["compaction", "cleaning"]:
            assert storage.count("list_tree", under="north") == 0
        storage.forget()
        to.table.view()
        assert storage.requests == [], "our own cleans and archivals are carried into the view"
    assert idle


def test_disabled_service_does_not_run() -> None:
    _, to = table()
    for number in range(8):
        commit(to, [Row("a", number, number)])
        assert run(to, ServicePolicies()) == []


def test_the_last_checkpoint_stays_in_the_active_timeline() -> None:
    storage, to = table()
    checkpoint = KafkaCheckpoint.parse("orders,0:17")
    kept = commit(to, [Row("a", 0, 0)], commit_keys.encode(checkpoint))
    policies = ServicePolicies(archival=POLICIES.archival)
    for number in range(1, 10):  # of a writer that knows of no checkpoints
        commit(to, [Row("a", number, number)])
        run(to, policies)
        assert to.table.timeline.find(kept.requested_at) is not None
    commit(to, [Row("a", 10, 10)], commit_keys.encode(checkpoint))
    run(to, policies)
    assert to.table.timeline.find(kept.requested_at) is None
    assert (kept.requested_at, "deltacommit") in archived_names(storage)


def test_instants_not_compacted_in_the_metadata_table_stay_active() -> None:
    storage = CountingStorage(new_storage())
    make(storage)
    to = writer(storage)
    archivals = 0
    for number in range(16):
        commit(to, [Row("a", number, number), Row("b", number, number, region="south")])
        known = to.table.timeline
        storage.forget()
        done = run(to)
        assert done or storage.requests == [], "what is held back is held back without a look"
        archivals += "archival" in done
        own = TimelineStore(storage, LayoutV2(METADATA_TIMELINE)).load()
        compacted = max((i.requested_at for i in own.completed(Action.COMMIT)), default="")
        gone = set(known.completed(*COMMITS)) - set(to.table.timeline.instants)
        assert all((instant.completed_at or "") <= compacted for instant in gone)
        assert contents(storage) == {"a": (number, number), "b": (number, number)}
        fresh = writer(storage).table
        assert fresh.view().latest_slices() == to.table.view().latest_slices()
        assert keep_metadata_table(to.table) is None, "it has all files of the table"
    assert archivals > 1


def test_a_table_of_many_commits_stays_small_with_its_metadata_table() -> None:
    storage = CountingStorage(new_storage())
    make(storage)
    to = writer(storage)
    longest: list[int] = []
    for number in range(65):
        commit(to, [Row("a", number, number)])
        own = to.table.metadata_writer.timeline
        storage.forget()
        done = run(to)
        if not done:
            assert storage.requests == []
        if "metadata" in done:
            assert to.table.metadata_writer.timeline != own
            assert contents(storage) == {"a": (number, number)}
        # How many files the history has, its layers say.
        longest.append(sum("/history/" not in one.path for one in storage.list_tree(".hoodie")))
    assert max(longest[50:]) <= max(longest[30:50]), "it grows no more"
    fresh = TimelineStore(storage, LayoutV2(METADATA_TIMELINE)).load()
    assert fresh.instants == to.table.metadata_writer.timeline.instants  # type: ignore[union-attr]
    assert keep_metadata_table(to.table) is None, "it has all files of the table"
    assert metadata_differences(to.table) == []


def test_times_of_a_shared_tables_metadata_table_pass_on_all_clocks_as_well() -> None:
    waits: list[float] = []

    class Noted(MultiWriter):
        def let_clocks_pass(self) -> None:
            waits.append(self.clock_skew_ms)

    storage = new_storage()
    make(storage)
    to = writer(storage, multi_writer=Noted())
    for number in range(3 * EVERY_DELTA_COMMITS + 1):
        commit(to, [Row("a", number, number)])
    waits.clear()
    maintained = maintain_metadata_table(to.table, MetadataPolicies.for_data_table())
    assert maintained is not None
    assert len(maintained.timeline.completed(Action.CLEAN)) == 1
    assert len(waits) == 2, "its request and its completion"
