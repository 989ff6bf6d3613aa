"""Services run in order between two batches, and read nothing if none is due."""

from __future__ import annotations

from checkpoints import commit_keys
from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from lakemark.model.action import COMMITS, Action
from lakemark.operations.metadata_table import (
    keep_metadata_table,
    maintain_metadata_table,
    metadata_differences,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.metadata_table_services import MetadataPolicies
from lakemark.services.savepoint import create_savepoint
from lakemark.timeline.layout import LayoutV2
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.multi_writer import MultiWriter
from streamer.events import (
    CompactionCompleted,
    Event,
    ServiceCompleted,
)
from streamer.services import ServicePolicies, TableServices
from tests.storages import CountingStorage
from tests.table_services import archived_names, make_plain, new_storage
from tests.tables import Row, commit, contents, make, writer

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
