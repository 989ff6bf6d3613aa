"""Past states of a table, by requested time, are complete; states that are gone are refused."""

from __future__ import annotations

from uuid import uuid4

import pytest

from lakemark.codec import avro_container
from lakemark.errors import InvalidConfig
from lakemark.model.action import Action, State
from lakemark.model.clean_plan import CleanPlan
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile
from lakemark.model.instant import Instant
from lakemark.storage import StorageLocation, open_storage
from lakemark.timeline.content import encode_clean_plan
from lakemark.timeline.layout import LayoutV1, LayoutV2, TimelineLayout
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile, data_file
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.retention import check_retained


def completed(requested_at: str, completed_at: str, action: Action = Action.COMMIT) -> Instant:
    return Instant(requested_at, action, State.COMPLETED, completed_at)


def named(name: str) -> DataFile:
    file = data_file("p", name, 1)
    assert file is not None
    return file


def test_later_slices_logs_and_replacements_are_hidden() -> None:
    files = [
        named("g_0-1-2_10.parquet"),
        named(".g_20.log.1_0-1-2"),
        named(".g_26.log.1_0-1-2"),
        named("g_0-1-2_30.parquet"),
        named("h_0-1-2_40.parquet"),
    ]
    timeline = Timeline.of(
        [
            completed("10", "11"),
            completed("20", "21", Action.DELTA_COMMIT),
            completed("26", "27", Action.DELTA_COMMIT),
            completed("30", "31"),
            completed("40", "41", Action.REPLACE_COMMIT),
        ]
    )
    replacing = CommitMetadata(replaced_file_ids={"p": ("g",)})
    view = FileSystemView.of({"p": files}, timeline, replacements={"40": replacing})

    def seen(instant: str) -> list[tuple[str, list[str]]]:
        slices = view.as_of(instant).latest_slices()
        return [(s.base_instant, [log.name.instant for log in s.logs]) for s in slices]

    assert [s.base_instant for s in view.latest_slices()] == ["40"]
    assert seen("99") == [("40", [])]
    assert seen("39") == [("30", [])]
    assert seen("29") == [("10", ["20", "26"])]
    assert seen("25") == [("10", ["20"])]
    assert seen("10") == [("10", [])]
    assert seen("09") == []
    assert view.as_of("25").read_optimized()[0].base == files[0]
    assert [view.as_of("25").visible_instants(t) for t in ("20", "26")] == [True, False]


@pytest.mark.parametrize("is_done", [True, False])
def test_log_in_the_slice_of_a_later_compaction_is_omitted_as_in_apache_hudi(
    is_done: bool,
) -> None:
    files = [
        named("g_0-1-2_10.parquet"),
        named(".g_15.log.1_0-1-2"),
        named(".g_20.log.1_0-1-2"),
        named(".g_60.log.1_0-1-2"),
    ]
    instants = [
        completed("10", "11"),
        completed("15", "16", Action.DELTA_COMMIT),
        completed("20", "45", Action.DELTA_COMMIT),
        completed("60", "61", Action.DELTA_COMMIT),
    ]
    if is_done:
        files.append(named("g_0-1-2_30.parquet"))
        instants.append(completed("30", "50"))
    else:
        instants.append(Instant("30", Action.COMPACTION, State.REQUESTED))
    base, log = files[:2]
    assert isinstance(base, BaseFile)
    assert isinstance(log, LogFile)
    planned = CompactionPlan.of([FileSlice(FileGroupId("p", "g"), "10", base, (log,))])
    plans = {} if is_done else {"30": planned}
    view = FileSystemView.of({"p": files}, Timeline.of(instants), plans)

    def seen(instant: str) -> list[tuple[str, list[str]]]:
        slices = view.as_of(instant).latest_slices()
        return [(s.base_instant, [log.name.instant for log in s.logs]) for s in slices]

    assert seen("18") == [("10", ["15"])]
    assert seen("20") == [("10", ["15"])]
    assert seen("29") == [("10", ["15"])]
    assert seen("30") == ([("30", ["20"])] if is_done else [("10", ["15", "20"])])


def test_a_group_replaced_twice_was_replaced_the_first_time() -> None:
    replacing = CommitMetadata(replaced_file_ids={"p": ("g",)})
    view = FileSystemView.of(
        {"p": [named("g_0-1-2_10.parquet")]},
        Timeline.of([completed("10", "11"), completed("40", "41"), completed("30", "31")]),
        replacements={"40": replacing, "30": replacing},
    )
    assert view.as_of("35").latest_slices() == []
    assert len(view.as_of("29").latest_slices()) == 1


def store_with(layout: TimelineLayout, *instants: tuple[Instant, bytes]) -> TimelineStore:
    storage = open_storage(StorageLocation(f"memory://{uuid4()}"))
    store = TimelineStore(storage, layout)
    for instant, content in instants:
        storage.put(store.path_of(instant), content)
    return store


def clean_content(earliest_retained: str) -> bytes:
    record: dict[str, object] = {
        "startCleanTime": "50",
        "timeTakenInMillis": 1,
        "totalFilesDeleted": 0,
        "earliestCommitToRetain": earliest_retained,
        "partitionMetadata": {},
    }
    return avro_container.encode("HoodieCleanMetadata", record)


@pytest.mark.parametrize(("stated", "earliest"), [("20", "20"), ("", "10")])
def test_time_travel_to_a_cleaned_state_is_refused(stated: str, earliest: str) -> None:
    store = store_with(
        LayoutV2(),
        (completed("10", "11"), b""),
        (completed("45", "46", Action.CLEAN), clean_content("05")),
        (completed("50", "51", Action.CLEAN), clean_content(stated)),
    )
    check_retained(store.load(), store, earliest)
    with pytest.raises(InvalidConfig, match=f"earliest readable instant is {earliest}"):
        check_retained(store.load(), store, str(int(earliest) - 1).zfill(2))


def clean_plan(earliest_retained: str) -> bytes:
    policy = "KEEP_LATEST_COMMITS" if earliest_retained else "KEEP_LATEST_FILE_VERSIONS"
    return encode_clean_plan(
        CleanPlan(policy=policy, earliest_retained=earliest_retained), "memory://table"
    )


@pytest.mark.parametrize(("planned", "earliest"), [("20", "20"), ("", "10")])
def test_time_travel_to_a_state_that_an_inflight_clean_deletes_is_refused(
    planned: str, earliest: str
) -> None:
    requested = Instant("50", Action.CLEAN, State.REQUESTED)
    store = store_with(
        LayoutV2(),
        (completed("10", "11"), b""),
        (completed("20", "21"), b""),
        (completed("45", "46", Action.CLEAN), clean_content("05")),
        (requested, clean_plan(planned)),
    )
    before = str(int(earliest) - 1).zfill(2)
    check_retained(store.load(), store, before)  # it has deleted nothing yet
    store.create(requested.inflight())
    check_retained(store.load(), store, earliest)
    with pytest.raises(InvalidConfig, match=f"earliest readable instant is {earliest}"):
        check_retained(store.load(), store, before)
    check_retained(store.load(), store, before, savepoint_keeps=lambda: True)


def test_time_travel_to_a_state_that_is_not_final_is_refused() -> None:
    dead = Instant("30", Action.DELTA_COMMIT, State.INFLIGHT)
    store = store_with(LayoutV2(), (completed("10", "11"), b""), (dead, b""))
    check_retained(store.load(), store, "29")
    with pytest.raises(InvalidConfig, match=str(dead)):
        check_retained(store.load(), store, "30")


@pytest.mark.parametrize("is_clustering", [True, False])
def test_state_is_final_with_pending_clustering_but_not_with_pending_overwrite(
    is_clustering: bool,
) -> None:
    plan: dict[str, object] = {"inputGroups": [], "strategy": None, "extraMetadata": {}}
    record: dict[str, object] = (
        {"operationType": "CLUSTER", "clusteringPlan": plan} if is_clustering else {}
    )
    content = avro_container.encode("HoodieRequestedReplaceMetadata", record)
    pending = Instant("30", Action.REPLACE_COMMIT, State.REQUESTED)
    store = store_with(LayoutV1(), (completed("10", "11"), b""), (pending, content))
    if is_clustering:
        check_retained(store.load(), store, "30")
    else:
        with pytest.raises(InvalidConfig, match=str(pending)):
            check_retained(store.load(), store, "30")
