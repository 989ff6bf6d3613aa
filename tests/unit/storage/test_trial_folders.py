"""Folders for trials are deleted, also those of other processes that were killed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from lakemark.storage import StorageLocation, open_storage, trial_folders
from lakemark.storage.trial_folders import TrialFolders, TrialStopped
from tests.fixtures.s3 import S3Server

LEFT = ".lakemark_doctor_left"


def try_at(location: StorageLocation) -> tuple[str, ...]:
    """Write an object in a folder for trials; return the warnings."""
    with TrialFolders().open(location) as folder:
        open_storage(folder.location).create("a/trial", b"")
    return folder.warnings


def leave(folder: Path, *, hours: float) -> None:
    """Leave a folder of a process that was killed some hours ago."""
    (folder / LEFT / "a").mkdir(parents=True)
    (folder / LEFT / "a" / "trial").touch()
    then = time.time() - hours * 3600
    for path in (*folder.rglob("*"), folder / LEFT):
        os.utime(path, (then, then))


def contents(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_table_that_another_writer_creates_meanwhile_is_kept(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    with TrialFolders().open(StorageLocation(str(tmp_path / "rows"))) as folder:
        open_storage(folder.location).create("trial", b"")
        (tmp_path / "rows" / ".hoodie" / "hoodie.properties").write_text("theirs")
    assert contents(tmp_path / "rows") == [".hoodie", ".hoodie/hoodie.properties"]


@pytest.mark.parametrize(
    ("place", "existing", "remaining"),
    [
        ("rows/.hoodie", ["rows/foreign.csv"], ["rows", "rows/foreign.csv"]),
        (
            "rows/.hoodie",
            ["rows/.hoodie/hoodie.properties"],
            ["rows", "rows/.hoodie", "rows/.hoodie/hoodie.properties"],
        ),
        ("", [], []),  # the table did not exist yet, and still does not
        (
            "",
            ["rows/.hoodie/hoodie.properties"],  # the table has been created since
            ["rows", "rows/.hoodie", "rows/.hoodie/hoodie.properties"],
        ),
    ],
)
def test_old_folder_of_a_killed_process_is_deleted_from_a_disk(
    tmp_path: Path, place: str, existing: list[str], remaining: list[str]
) -> None:
    for file in existing:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    leave(tmp_path / place, hours=2)
    assert try_at(StorageLocation(str(tmp_path / "rows"))) == ()
    assert contents(tmp_path) == remaining


def test_young_folder_may_be_in_use_and_is_kept(tmp_path: Path) -> None:
    leave(tmp_path, hours=0.9)
    before = contents(tmp_path)
    try_at(StorageLocation(str(tmp_path / "rows")))
    assert contents(tmp_path) == before


def test_folders_in_a_foreign_folder_leave_no_hoodie_folder(tmp_path: Path) -> None:
    """The second trial begins while the first one has created the folder ``.hoodie``."""
    location, folders = StorageLocation(str(tmp_path)), TrialFolders()
    (tmp_path / "foreign.csv").touch()
    with folders.open(location) as first:
        open_storage(first.location).create("trial", b"")
        second = folders.open(location)
        open_storage(second.__enter__().location).create("trial", b"")
    second.__exit__(None, None, None)
    assert contents(tmp_path) == ["foreign.csv"]


def test_old_folder_is_deleted_from_an_object_store(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = s3_server.location()
    storage = open_storage(location)
    left = f".hoodie/{LEFT}/a/trial"
    storage.create(left, b"")
    storage.create(".hoodie/hoodie.properties", b"")
    try_at(location)
    assert {one.path for one in storage.list_tree("")} == {left, ".hoodie/hoodie.properties"}
    monkeypatch.setattr(trial_folders, "_OLD_AFTER", -trial_folders._OLD_AFTER)
    try_at(location)
    assert [one.path for one in storage.list_tree("")] == [".hoodie/hoodie.properties"]


def test_folder_that_cannot_be_deleted_is_a_warning(s3_server: S3Server) -> None:
    location = s3_server.own_bucket()
    with TrialFolders().open(location) as folder:
        open_storage(folder.location).create("trial", b"")
        s3_server.deny(location, "s3:DeleteObject")
    (warning,) = folder.warnings
    assert warning.startswith(f"{folder.location.url} could not be deleted (")


def test_closing_stops_the_trials_and_waits_until_their_folders_are_deleted(tmp_path: Path) -> None:
    folders, writes, may_end = TrialFolders(), Event(), Event()
    stopped = list[TrialStopped]()

    def run() -> None:
        try:
            with folders.open(StorageLocation(str(tmp_path / "rows"))) as folder:
                open_storage(folder.location).create("trial", b"")
                writes.set()
                may_end.wait(30)
                folder.check()
        except TrialStopped as error:
            stopped.append(error)

    thread = Thread(target=run)
    thread.start()
    assert writes.wait(30)
    (url,) = folders.close(0.0)
    assert Path(url).is_dir()
    may_end.set()
    assert folders.close(30.0) == ()
    assert contents(tmp_path) == []
    thread.join()
    assert len(stopped) == 1
    with pytest.raises(TrialStopped), folders.open(StorageLocation(str(tmp_path))):
        pass
