"""The history of versions 8 and 9 grows as a tree, and lists each instant once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from io import BytesIO

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.errors import CorruptData
from lakemark.model.action import Action
from lakemark.model.instant import Instant
from lakemark.storage import Storage
from lakemark.timeline.content import encode_commit
from lakemark.timeline.lsm_history import LsmHistory
from lakemark.timeline.lsm_manifest import ManifestFile
from lakemark.timeline.lsm_writer import ArchivedInstant, HistorySettings, LsmWriter, mergeable
from lakemark.timeline.timeline_store import TimelineStore
from tests.depth import examples
from tests.unit.timeline.archives import (
    HISTORY,
    history_file,
    instant,
    metadata_of,
    new_storage,
    put_history,
    time_of,
)

SMALL = HistorySettings(files_to_merge=3)

#: Where a page's header has its type.
_PAGE_TYPE = 1


def row(item: Instant) -> ArchivedInstant:
    content = encode_commit(Action.COMMIT, metadata_of(item))
    return ArchivedInstant(
        item.requested_at, item.completed_at or "", item.action.value, content, b"plan"
    )


def add(storage: Storage, items: Sequence[Instant], kept: HistorySettings = SMALL) -> None:
    history = LsmHistory(storage, HISTORY)
    writer = LsmWriter(storage, history, lambda: None, kept)
    rows: Iterator[ArchivedInstant] = map(row, items)
    writer.add(rows, items[0].requested_at, items[-1].requested_at)
    writer.merge_files()


@settings(deadline=None, max_examples=examples(30))
@given(st.lists(st.integers(1, 3), min_size=1, max_size=20))
def test_what_was_added_is_found_however_often_it_was_merged(counts: list[int]) -> None:
    storage, added = new_storage(), list[Instant]()
    for count in counts:
        items = [instant(len(added) + n) for n in range(count)]
        added += items
        add(storage, items)
        archived = LsmHistory(storage, HISTORY).load()
        assert list(archived.instants()) == added
    assert archived.read_commit(added[0]) == metadata_of(added[0])
    assert archived.read_commit(added[-1]) == metadata_of(added[-1])
    layers = [file.layer for file in LsmHistory(storage, HISTORY).current()]
    assert all(layers.count(layer) < SMALL.files_to_merge for layer in layers)
    names = [info.name for info in storage.list_folder(HISTORY)[1]]
    assert sum(name.startswith("manifest_") for name in names) <= SMALL.manifests_kept + 3


def test_a_file_is_as_apache_writes_it() -> None:
    storage = new_storage()
    add(storage, [instant(1), instant(2)])
    manifest = json.loads(storage.read(f"{HISTORY}/manifest_1"))
    (entry,) = manifest["files"]
    data = storage.read(f"{HISTORY}/{entry['fileName']}")
    assert entry == {
        "fileName": f"{instant(1).requested_at}_{instant(2).requested_at}_0.parquet",
        "fileLen": len(data),
    }
    assert storage.read(f"{HISTORY}/_version_") == b"1"
    with storage.open(f"{HISTORY}/{entry['fileName']}") as stream:
        parquet = pq.ParquetFile(stream)
        schema = json.loads(parquet.metadata.metadata[b"parquet.avro.schema"])
        rows = parquet.read().to_pylist()
    assert schema["name"] == "HoodieLSMTimelineInstant"
    assert [field["name"] for field in schema["fields"]] == list(rows[0])
    assert [row["version"] for row in rows] == [1, 1]


@pytest.mark.parametrize("column", range(6))
def test_instants_in_a_page_that_arrow_passes_over_are_not_merged_away(column: int) -> None:
    """A merge fails instead of dropping instants of a page that Arrow skips.

    A flipped bit makes the type of the page unknown to Arrow.
    """
    storage = new_storage()
    add(storage, [instant(0), instant(1)])
    (path,) = (f"{HISTORY}/{file.name}" for file in LsmHistory(storage, HISTORY).current())
    data = bytearray(storage.read(path))
    chunk = pq.read_metadata(BytesIO(data)).row_group(0).column(column)
    data[chunk.data_page_offset + _PAGE_TYPE] ^= 2
    storage.put(path, bytes(data))
    with pytest.raises(CorruptData, match=path):
        for number in range(2, 2 + SMALL.files_to_merge):
            add(storage, [instant(number)])
    assert storage.read(path) == bytes(data)


def test_an_instant_that_a_dead_archiver_left_in_two_files_is_merged_into_one() -> None:
    storage = new_storage()
    put_history(storage, 1, [[instant(1), instant(2)], [instant(2), instant(3)]])
    add(storage, [instant(4)])
    (merged,) = LsmHistory(storage, HISTORY).current()
    assert merged.layer == 1
    with storage.open(f"{HISTORY}/{merged.name}") as stream:
        times = pq.read_table(stream, columns=["instantTime"])["instantTime"].to_pylist()
    assert times == [instant(number).requested_at for number in (1, 2, 3, 4)]


def test_half_files_of_a_dead_archiver_are_not_used_and_soon_deleted() -> None:
    storage = new_storage()
    add(storage, [instant(1)])
    name = f"{instant(2).requested_at}_{instant(2).requested_at}_0.parquet"
    storage.put(f"{HISTORY}/{name}", b"half a file")
    storage.put(f"{HISTORY}/manifest_2", b"half a manifest")
    add(storage, [instant(2)])
    assert list(LsmHistory(storage, HISTORY).load().instants()) == [instant(1), instant(2)]
    assert storage.head(f"{HISTORY}/{name}") is None
    for number in range(3, 6):
        add(storage, [instant(number)])
    assert storage.head(f"{HISTORY}/manifest_2") is None
    assert list(LsmHistory(storage, HISTORY).load().instants()) == [instant(n) for n in range(1, 6)]


def test_an_archiver_goes_on_from_a_manifest_that_version_does_not_name_yet() -> None:
    storage = new_storage()
    for number in (1, 2):
        add(storage, [instant(number)])
    storage.put(f"{HISTORY}/_version_", b"1")
    history = LsmHistory(storage, HISTORY)
    assert list(history.load().instants()) == [instant(1)]
    known = LsmWriter(storage, history, lambda: None).find_archived(time_of(0), time_of(9))
    assert list(known) == [instant(1), instant(2)]
    assert list(history.load().instants()) == [instant(1), instant(2)], "readers see it, too"
    add(storage, [instant(3)])
    assert list(history.load().instants()) == [instant(1), instant(2), instant(3)]


def test_archiver_names_the_first_manifest_of_an_archiver_that_died() -> None:
    """The next archiver writes the missing ``_version_``.

    Without this file, Apache Hudi finds no history.
    """
    storage = new_storage()
    add(storage, [instant(1)])
    storage.delete([f"{HISTORY}/_version_"])
    history = LsmHistory(storage, HISTORY)
    known = LsmWriter(storage, history, lambda: None).find_archived(time_of(0), time_of(9))
    assert list(known) == [instant(1)]
    assert storage.read(f"{HISTORY}/_version_") == b"1"
    assert list(history.load().instants()) == [instant(1)]


def test_a_manifest_whose_file_was_deleted_is_not_continued() -> None:
    storage = new_storage()
    for number in (1, 2):
        add(storage, [instant(number)])
    (lost,) = {f.name for f in LsmHistory(storage, HISTORY).current()} - {
        f.name for f in LsmHistory(storage, HISTORY).manifest(1)
    }
    storage.put(f"{HISTORY}/_version_", b"1")
    storage.delete([f"{HISTORY}/{lost}"])
    add(storage, [instant(3)])
    assert list(LsmHistory(storage, HISTORY).load().instants()) == [instant(1), instant(3)]


def test_an_archiver_that_adds_nothing_deletes_no_file_that_another_is_about_to_name() -> None:
    storage = new_storage()
    add(storage, [instant(0)])
    history = LsmHistory(storage, HISTORY)
    other = LsmWriter(storage, history, lambda: None)
    late = LsmWriter(storage, history, check=other.merge_files)
    late.add(iter([row(instant(1))]), time_of(1), time_of(1))
    assert list(LsmHistory(storage, HISTORY).load().instants()) == [instant(0), instant(1)]


def test_a_name_that_is_taken_is_not_used_again() -> None:
    """An archiver uses a new file name, because another one may name or delete the old file."""
    storage = new_storage()
    add(storage, [instant(0)])
    name, content = history_file([instant(1)])
    storage.put(f"{HISTORY}/{name}", content)
    late = LsmWriter(storage, LsmHistory(storage, HISTORY), lambda: None)
    late.add(iter([row(instant(1))]), time_of(1), time_of(1))
    _, file = LsmHistory(storage, HISTORY).current()
    assert file.name == f"{time_of(1)}_{time_of(1)}0_0.parquet"
    assert list(LsmHistory(storage, HISTORY).load().instants()) == [instant(0), instant(1)]


class LockLost(Exception):
    pass


@pytest.mark.parametrize("count", [2, 3, 5, 7, 9, 10, 13])
@pytest.mark.parametrize("has_version", [True, False])
def test_a_lost_manifest_loses_no_instant_and_the_next_archival_replaces_it(
    count: int, has_version: bool, caplog: pytest.LogCaptureFixture
) -> None:
    storage, items = new_storage(), [instant(n) for n in range(count + 1)]
    for item in items[:count]:
        add(storage, [item])
    newest = LsmHistory(storage, HISTORY).newest_version()
    storage.delete([f"{HISTORY}/manifest_{newest}"])
    if not has_version:
        storage.delete([f"{HISTORY}/_version_"])
    archived = LsmHistory(storage, HISTORY).load()
    assert list(archived.instants()) == items[:count]
    assert archived.read_commit(items[0]) == metadata_of(items[0])
    assert ("manifest_" in caplog.text) == has_version, "a warning names the lost manifest"
    add(storage, items[count:])
    caplog.clear()
    assert list(LsmHistory(storage, HISTORY).load().instants()) == items
    assert not caplog.text
    named = {file.name for file in LsmHistory(storage, HISTORY).current()}
    assert named <= {info.name for info in storage.list_folder(HISTORY)[1]}


def test_a_history_without_any_manifest_is_damaged_and_nothing_of_it_is_deleted() -> None:
    storage = new_storage()
    for number in range(5):
        add(storage, [instant(number)])
    listed = [info.path for info in storage.list_folder(HISTORY)[1]]
    storage.delete([path for path in listed if "manifest_" in path])
    left = [info.path for info in storage.list_folder(HISTORY)[1]]
    with pytest.raises(CorruptData, match="copy it back from a backup"):
        LsmHistory(storage, HISTORY).load()
    with pytest.raises(CorruptData, match="no manifest"):
        add(storage, [instant(9)])
    assert [info.path for info in storage.list_folder(HISTORY)[1]] == left


def lose_manifests_and_version(storage: Storage) -> None:
    listed = [info.path for info in storage.list_folder(HISTORY)[1]]
    storage.delete([path for path in listed if not path.endswith(".parquet")])


def put_active(storage: Storage, items: Sequence[Instant]) -> None:
    for item in items:
        path = f".hoodie/timeline/{item.requested_at}_{item.completed_at}.deltacommit"
        storage.put(path, encode_commit(Action.COMMIT, metadata_of(item)))


def test_data_files_without_any_manifest_or_version_are_a_damaged_history() -> None:
    storage, items = new_storage(), [instant(n) for n in range(3)]
    put_active(storage, items[2:])
    add(storage, items[:2])
    lose_manifests_and_version(storage)
    left = [info.path for info in storage.list_folder(HISTORY)[1]]
    with pytest.raises(CorruptData, match=r"manifest_1.*copy it back from a backup"):
        TimelineStore(storage).load_archived()
    with pytest.raises(CorruptData, match="no manifest"):
        TimelineStore(storage).archive(items[2:], lambda: None)
    assert [info.path for info in storage.list_folder(HISTORY)[1]] == left


def test_a_first_archival_that_died_before_its_manifest_left_an_empty_history() -> None:
    storage, items = new_storage(), [instant(n) for n in range(3)]
    put_active(storage, items)
    add(storage, items[:2])
    lose_manifests_and_version(storage)
    store = TimelineStore(storage)
    assert store.load_archived().instants() == ()
    store.archive(items[:1], lambda: None)
    assert list(store.load_archived().instants()) == items[:1]


@pytest.mark.parametrize("layers", [1, 4])
def test_a_second_archival_of_the_same_range_replaces_no_file(layers: int) -> None:
    storage, actions = new_storage(), [Action.DELTA_COMMIT, Action.SAVEPOINT, Action.CLEAN]
    items = [instant(1, action) for action in actions] * layers
    for item in items:
        add(storage, [item])
    assert set(LsmHistory(storage, HISTORY).load().instants()) == set(items)


def test_an_older_manifest_whose_files_are_lost_is_not_used() -> None:
    storage = new_storage()
    for number in range(2):
        add(storage, [instant(number)])
    lost = LsmHistory(storage, HISTORY).manifest(1)[0].name
    storage.delete([f"{HISTORY}/manifest_2", f"{HISTORY}/{lost}"])
    with pytest.raises(CorruptData, match="no such file"):
        LsmHistory(storage, HISTORY).load()


def test_nothing_changes_once_the_lock_is_lost() -> None:
    def lost() -> None:
        raise LockLost

    storage = new_storage()
    add(storage, [instant(1)])
    writer = LsmWriter(storage, LsmHistory(storage, HISTORY), lost, SMALL)
    with pytest.raises(LockLost):
        writer.add(iter([row(instant(2))]), instant(2).requested_at, instant(2).requested_at)
    assert list(LsmHistory(storage, HISTORY).load().instants()) == [instant(1)]


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ([1, 1], None),
        ([1, 1, 1, 1], [0, 1, 2]),
        ([60, 60, 1], [0, 1]),
        ([200, 1, 1], [1, 2]),
        ([200, 200, 200], None),
        ([200, 200, 1, 1, 1, 1], [2, 3, 4]),
    ],
)
def test_merging_stops_at_a_size(sizes: list[int], chosen: list[int] | None) -> None:
    files = [ManifestFile.of(str(n), str(n), 0, size) for n, size in enumerate(sizes)]
    others = [ManifestFile.of("0", "9", 1, 1)]
    picked = mergeable([*reversed(files), *others], 0, HistorySettings(3, 100))
    assert picked == (None if chosen is None else [files[n] for n in chosen])
