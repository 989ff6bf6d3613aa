from __future__ import annotations

from pathlib import Path

import pytest

from lakemark.errors import CorruptData
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.compaction_plan import CompactionOperation, CompactionPlan
from lakemark.model.file_slice import FileGroupId
from lakemark.model.instant import Instant
from lakemark.storage import StorageLocation, open_storage
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import DataFile, StorageFileLister, data_file
from lakemark.view.file_system_view import FileSystemView


def completed(requested_at: str, completed_at: str, action: Action = Action.COMMIT) -> Instant:
    return Instant(requested_at, action, State.COMPLETED, completed_at)


def base(instant: str, token: str = "0-1-2", file_id: str = "g") -> DataFile:
    return named(f"{file_id}_{token}_{instant}.parquet")


def named(name: str) -> DataFile:
    file = data_file("p", name, 1)
    assert file is not None
    return file


def view_of(*files: DataFile, timeline: Timeline) -> FileSystemView:
    return FileSystemView.of({"p": files}, timeline)


def test_later_of_two_attempts_is_used_in_any_listing_order() -> None:
    timeline = Timeline((completed("10", "11"),))
    first, second = base("10", "0-9-2"), base("10", "0-10-2")
    for files in ([first, second], [second, first]):
        (file_slice,) = view_of(*files, timeline=timeline).latest_slices()
        assert file_slice.base == second


def test_files_older_than_the_active_timeline_count_as_committed() -> None:
    timeline = Timeline((completed("20", "21"),))
    (file_slice,) = view_of(base("10"), base("30"), timeline=timeline).latest_slices()
    assert file_slice.base_instant == "10"


def test_read_optimized_omits_groups_without_base_file() -> None:
    timeline = Timeline((completed("10", "11"), completed("12", "13", Action.DELTA_COMMIT)))
    files = [base("10"), named(".g_12.log.1_0-1-2"), named(".h_12.log.1_0-1-2")]
    view = view_of(*files, timeline=timeline)
    assert [len(s.logs) for s in view.latest_slices()] == [1, 1]
    (file_slice,) = view.read_optimized()
    assert file_slice.base == files[0]
    assert file_slice.logs == ()


def test_read_optimized_shows_the_newest_base_file() -> None:
    timeline = Timeline((completed("10", "11"), completed("20", "21")))
    (file_slice,) = view_of(base("10"), base("20"), timeline=timeline).read_optimized()
    assert file_slice.base == base("20")


def test_cdc_files_are_not_read_as_logs() -> None:
    timeline = Timeline((completed("10", "11"),))
    view = view_of(base("10"), named(".g_10.log.1_0-1-2.cdc"), timeline=timeline)
    assert view.latest_slices()[0].logs == ()


def test_replaced_groups_are_hidden_but_known_to_the_cleaner() -> None:
    view = view_of(base("10"), base("10", file_id="h"), timeline=Timeline((completed("10", "11"),)))
    replacing = completed("20", "21", Action.REPLACE_COMMIT)
    stat = WriteStat(path="p/i_0-1-2_20.parquet", file_size_in_bytes=7)
    after = view.with_commit(
        replacing, CommitMetadata(write_stats=(stat,), replaced_file_ids={"p": ("g",)})
    )
    assert [s.group.file_id for s in after.latest_slices()] == ["h", "i"]
    assert [group.id.file_id for group in after.replaced_groups()] == ["g"]
    assert after.groups[FileGroupId("p", "h")] is view.groups[FileGroupId("p", "h")]
    assert [s.group.file_id for s in view.latest_slices()] == ["g", "h"]
    gone = after.without_files(["p/g_0-1-2_10.parquet"])
    assert gone.replaced_groups() == []


def test_completed_compaction_is_no_longer_pending() -> None:
    group, other = FileGroupId("p", "g"), FileGroupId("p", "h")
    operations = tuple(
        CompactionOperation(group=name, base_instant="", data_file=None, log_files=())
        for name in (group, other)
    )
    view = view_of(base("10"), base("10", file_id="h"), timeline=Timeline((completed("10", "11"),)))
    planned = view.with_compaction_plan("20", CompactionPlan(operations[:1]))
    planned = planned.with_compaction_plan("30", CompactionPlan(operations[1:]))
    stat = WriteStat(path="p/g_0-1-2_20.parquet", file_size_in_bytes=7)
    after = planned.with_commit(completed("20", "40"), CommitMetadata(write_stats=(stat,)))
    assert after.compactions == {other: "30"}
    assert after.groups[group].compaction is None


def test_commit_adds_partitions_and_file_sizes() -> None:
    stat = WriteStat(path="q/r/g_0-1-2_20.parquet", file_size_in_bytes=7)
    view = FileSystemView(Timeline(())).with_commit(
        completed("20", "21"), CommitMetadata(write_stats=(stat, WriteStat(path=None)))
    )
    (file_slice,) = view.latest_slices("q/r")
    assert file_slice.base is not None
    assert file_slice.base.size_bytes == 7
    assert view.partitions == {"q/r"}
    assert view.latest_slices("q") == []


def test_write_stat_without_a_data_file_is_corrupt() -> None:
    metadata = CommitMetadata(write_stats=(WriteStat(path="p/what.txt"),))
    with pytest.raises(CorruptData, match=r"what\.txt"):
        FileSystemView(Timeline(())).with_commit(completed("20", "21"), metadata)


@pytest.mark.parametrize(
    "metafile", [".hoodie_partition_metadata", ".hoodie_partition_metadata.parquet"]
)
@pytest.mark.parametrize("partition", ["", "a", "a=1/b=2"])
def test_a_listing_shows_folders_with_a_metafile(
    tmp_path: Path, partition: str, metafile: str
) -> None:
    def put(path: str) -> None:
        path_of_file = tmp_path / path
        path_of_file.parent.mkdir(parents=True, exist_ok=True)
        path_of_file.write_bytes(b"x" * 3)

    folder = f"{partition}/" if partition else ""
    put(f"{folder}{metafile}")
    put(f"{folder}g_0-1-2_10.parquet")
    put(f"{folder}.g_12.log.1_0-1-2")
    put(f"{folder}notes.txt")
    put("stranger/g_0-1-2_10.parquet")
    put(".hoodie/metadata/files/.hoodie_partition_metadata")
    put(".hoodie/metadata/files/g_0-1-2_10.hfile")
    listed = StorageFileLister(open_storage(StorageLocation(str(tmp_path)))).list_files()
    assert list(listed) == [partition]
    assert sorted(file.path for file in listed[partition]) == [
        f"{folder}.g_12.log.1_0-1-2",
        f"{folder}g_0-1-2_10.parquet",
    ]
    assert {file.size_bytes for file in listed[partition]} == {3}
