"""A view is a snapshot, even if other writers change the table while it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import uuid4

import pytest

from lakemark.codec import avro_container
from lakemark.errors import SnapshotChanged
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.compaction_plan import CompactionOperation, CompactionPlan
from lakemark.model.file_slice import FileGroupId
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.storage import Storage
from lakemark.timeline.content import encode_commit, encode_compaction_plan
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile, StorageFileLister, data_file
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.late_files import without_late_files
from lakemark.view.view_loader import load_view

BASE, NEWER = "p/g_0-1-2_10.parquet", "p/g_0-1-2_20.parquet"
LOG = "p/.g_12.log.1_0-1-2"


class InterruptedLister:
    """Lists files after another writer changed the table."""

    def __init__(self, storage: Storage, interruption: Callable[[], None]) -> None:
        self._inner, self._interruption = StorageFileLister(storage), interruption

    def list_files(self) -> Mapping[str, list[DataFile]]:
        self._interruption()
        return self._inner.list_files()


class Table:
    """A table with one base file and a log, which other writers change."""

    def __init__(self) -> None:
        self.storage = open_storage(StorageLocation(f"memory://{uuid4()}"))
        self.store = TimelineStore(self.storage)
        self.write("p/.hoodie_partition_metadata", BASE, LOG)
        self.instants(completed("10"), completed("12", Action.DELTA_COMMIT))

    def write(self, *paths: str) -> None:
        for path in paths:
            self.storage.put(path, b"x")

    def instants(self, *instants: Instant, content: bytes = b"") -> None:
        for instant in instants:
            self.storage.put(self.store.path_of(instant), content)

    def load(self, meanwhile: Callable[[], None] = lambda: None) -> FileSystemView:
        lister = InterruptedLister(self.storage, meanwhile)
        return load_view(self.store, self.store.load(), lister, FormatVersion.V9)


def completed(requested_at: str, action: Action = Action.COMMIT) -> Instant:
    return Instant(requested_at, action, State.COMPLETED, str(int(requested_at) + 1))


def pending(requested_at: str, action: Action) -> Instant:
    return Instant(requested_at, action, State.REQUESTED)


def seen(view: FileSystemView) -> list[str]:
    return [
        file.path for s in view.latest_slices() for file in [s.base, *s.logs] if file is not None
    ]


def test_commit_that_completes_during_the_listing_is_not_visible() -> None:
    table = Table()

    def compaction_completes() -> None:
        table.write(NEWER)
        table.instants(completed("20"))

    assert seen(table.load(compaction_completes)) == [BASE, LOG]
    assert seen(table.load()) == [NEWER]


@pytest.mark.parametrize("action", [Action.CLEAN, Action.RESTORE])
def test_clean_or_restore_begun_during_the_listing_raises_snapshot_changed(action: Action) -> None:
    table = Table()

    def others_delete() -> None:
        table.instants(pending("30", action))
        table.storage.delete([BASE])

    with pytest.raises(SnapshotChanged, match=str(pending("30", action))):
        table.load(others_delete)
    assert seen(table.load()) == [LOG]


def test_clean_planned_before_the_listing_does_not_disturb_it() -> None:
    table = Table()
    clean = pending("30", Action.CLEAN)
    table.instants(clean)
    assert seen(table.load(lambda: table.instants(clean.completed("35")))) == [BASE, LOG]


def test_commit_rolled_back_during_the_listing_raises_snapshot_changed() -> None:
    table = Table()
    rolled_back = completed("12", Action.DELTA_COMMIT)

    def others_roll_back() -> None:
        table.storage.delete([table.store.path_of(rolled_back), LOG])

    with pytest.raises(SnapshotChanged, match="rolled back"):
        table.load(others_roll_back)
    assert seen(table.load()) == [BASE]


def test_commit_archived_during_the_listing_does_not_disturb_it() -> None:
    table = Table()
    table.instants(completed("40"))
    table.write(".hoodie/timeline/history/_version_")

    def archived() -> None:
        table.storage.delete([table.store.path_of(completed("10"))])

    assert seen(table.load(archived)) == [BASE, LOG]


def test_plan_removed_during_the_listing_raises_snapshot_changed() -> None:
    table = Table()
    planned = pending("20", Action.COMPACTION)
    operation = CompactionOperation(
        group=FileGroupId("p", "g"), base_instant="10", data_file=None, log_files=()
    )
    table.instants(planned, content=encode_compaction_plan(CompactionPlan((operation,))))
    assert table.load().compactions == {FileGroupId("p", "g"): "20"}
    with pytest.raises(SnapshotChanged, match="was deleted; load the timeline again"):
        table.load(lambda: table.storage.delete([table.store.path_of(planned)]))


def test_view_knows_replaced_groups_and_pending_clusterings() -> None:
    table = Table()
    replacing = completed("20", Action.REPLACE_COMMIT)
    slices: list[object] = [{"fileId": "h", "partitionPath": "p"}]
    record: dict[str, object] = {
        "operationType": "CLUSTER",
        "clusteringPlan": {"inputGroups": [{"slices": slices}]},
    }
    content = avro_container.encode("HoodieRequestedReplaceMetadata", record)
    table.instants(pending("30", Action.CLUSTERING), content=content)
    table.instants(pending("32", Action.REPLACE_COMMIT))
    view = table.load()
    assert view.clusterings == {FileGroupId("p", "h"): "30"}
    assert seen(view) == [BASE, LOG]
    metadata = CommitMetadata(replaced_file_ids={"p": ("g",)})
    table.instants(replacing, content=encode_commit(Action.REPLACE_COMMIT, metadata))
    view = table.load()
    assert seen(view) == []
    assert [group.id.file_id for group in view.replaced_groups()] == ["g"]


def test_completed_clustering_is_no_longer_pending() -> None:
    table = Table()
    view = FileSystemView(table.store.load(), clusterings={FileGroupId("p", "g"): "30"})
    done = Instant("30", Action.CLUSTERING, State.REQUESTED).completed("31")
    metadata = CommitMetadata(replaced_file_ids={"p": ("g",)})
    assert view.with_commit(done, metadata).clusterings == {}


def test_late_instant_hides_its_files_but_not_logs_of_version_6() -> None:
    late, other = (data_file("p", path.rpartition("/")[2], 1) for path in (NEWER, BASE))
    log = data_file("p", ".g_20.log.1_0-1-2", 1)
    assert late and other and log
    files = {"p": [late, other, log]}
    assert without_late_files(files, {"20"}, FormatVersion.V9) == {"p": [other]}
    assert without_late_files(files, {"20"}, FormatVersion.V6) == {"p": [other, log]}
