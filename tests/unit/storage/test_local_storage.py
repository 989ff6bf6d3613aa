"""Behaviour that is specific to storage on a local disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from lakemark.errors import InvalidConfig, StorageUnavailable, Unsupported
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.disk import typed_errors
from lakemark.storage.storage import AlreadyExists, InvalidPath


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "table"


@pytest.fixture
def storage(root: Path) -> Storage:
    return open_storage(StorageLocation(str(root)))


def files(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*"))


def test_only_a_write_makes_the_root(storage: Storage, root: Path) -> None:
    storage.list_tree("")
    storage.head("a")
    storage.delete(["a"])
    assert not root.exists()
    storage.create("a", b"1")
    assert files(root) == ["a"]


@pytest.mark.parametrize("name", ["a" * 250, "é" * 125, "a" + "é" * 124])
def test_names_of_250_bytes_can_be_written(storage: Storage, root: Path, name: str) -> None:
    """A file system allows 255, and Hadoop's checksum of the file has a longer name."""
    storage.create(f"f/{name}", b"1")
    storage.put(f"f/{name}", b"2")
    assert storage.read(f"f/{name}") == b"2"
    assert files(root) == ["f", f"f/{name}"]


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}", "file://localhost{}"])
def test_a_path_may_be_written_in_several_ways(root: Path, form: str) -> None:
    location = StorageLocation(form.format(root))
    storage = open_storage(location)
    storage.create("a", b"1")
    assert (root / "a").read_bytes() == b"1"
    assert storage.location == location


def test_a_relative_path_is_the_same_for_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = open_storage(StorageLocation("table"))
    monkeypatch.chdir("/")
    storage.create("a", b"1")
    assert open_storage(storage.location).read("a") == b"1"
    assert (tmp_path / "table" / "a").exists()


def test_hadoops_checksum_goes_before_its_file_changes(storage: Storage, root: Path) -> None:
    checksum = root / ".hoodie" / ".hoodie.properties.crc"
    storage.create(".hoodie/hoodie.properties", b"old")
    checksum.write_bytes(b"of the old")
    assert storage.list_folder(".hoodie")[1][0].name == "hoodie.properties"
    assert len(storage.list_tree("")) == 1
    storage.put(".hoodie/hoodie.properties", b"new")
    assert files(root) == [".hoodie", ".hoodie/hoodie.properties"]
    checksum.write_bytes(b"of the new")
    storage.delete([".hoodie/hoodie.properties"])
    assert files(root) == []


def test_an_unfinished_file_is_not_listed_and_is_deleted_with_its_path(
    storage: Storage, root: Path
) -> None:
    killed = [storage.create_streaming("p/file") for _ in range(2)]
    killed[0].write(b"half of it")
    assert files(root) == ["p", "p/file#1", "p/file#2"]
    assert storage.list_tree("") == []
    storage.delete(["p/file"])
    assert files(root) == []
    with pytest.raises(StorageUnavailable, match="deleted while"):
        killed[0].close()
    assert storage.list_tree("") == []


def test_a_folder_of_a_name_that_is_never_written_is_listed_and_not_read(
    storage: Storage, root: Path
) -> None:
    folder = root / "a\tb" / "c"
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(b"1")
    assert storage.list_folder("")[0] == ["a\tb"]
    assert [info.path for info in storage.list_tree("a\tb")] == ["a\tb/c/file"]
    with pytest.raises(InvalidPath, match=r"a\\tb/c/file"):
        storage.read("a\tb/c/file")
    with pytest.raises(InvalidPath):
        storage.list_folder("../lake")


def test_an_abort_leaves_another_writers_file_alone(storage: Storage, root: Path) -> None:
    ours = storage.create_streaming("file")
    ours.abort()
    theirs = storage.create_streaming("file")
    ours.abort()
    theirs.write(b"1")
    assert theirs.close() == 1
    assert files(root) == ["file"]


def test_a_refused_create_leaves_no_other_file(storage: Storage, root: Path) -> None:
    storage.create("a", b"1")
    with pytest.raises(AlreadyExists):
        storage.create("a", b"2")
    assert files(root) == ["a"]


def test_publishing_is_a_link(storage: Storage, root: Path) -> None:
    storage.create("prepared", b"1")
    storage.publish("prepared", "timeline/done")
    assert (root / "prepared").samefile(root / "timeline" / "done")


def test_a_file_system_without_hard_links_is_refused(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(Unsupported, match="hard link"):
        storage.create("a", b"1")


def test_an_error_of_the_disk_is_reported(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, kind in ((28, StorageUnavailable), (13, InvalidConfig), (36, InvalidPath)):

        def fail(descriptor: int, data: memoryview, number: int = number) -> int:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "write", fail)
        with pytest.raises(kind, match=os.strerror(number)):
            storage.create("a", b"1")
    assert storage.list_folder("") == ([], [])


def test_file_is_complete_although_the_system_writes_a_part_of_it_at_a_time(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    storage.create("a", b"0123456789")
    storage.put("b", b"0123456789")
    assert storage.read("a") == storage.read("b") == b"0123456789"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_full_disk_names_the_table_and_the_remedy() -> None:
    with (
        open("/dev/full", "wb", buffering=0) as full,
        pytest.raises(StorageUnavailable) as raised,
        typed_errors("north/file.log", "/lake/orders"),
    ):
        full.write(b"1")
    assert str(raised.value) == (
        "the disk of /lake/orders is full (No space left on device while writing north/file.log); "
        "free space on it, raise the quota, or move the folder to a larger disk"
    )


def test_name_of_the_full_disk_is_that_of_the_storage(
    storage: Storage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(StorageUnavailable, match=f"the disk of {root} is full"):
        storage.create("a", b"1")


def test_a_name_that_is_too_long_is_a_bad_path(storage: Storage) -> None:
    with pytest.raises(InvalidPath, match="too long"):
        storage.create("x" * 300, b"")


def test_a_file_is_not_a_folder(storage: Storage) -> None:
    storage.create("a", b"1")
    with pytest.raises(InvalidPath, match="is a file"):
        storage.create("a/b", b"2")
    assert storage.head("a/b") is None
    storage.delete(["a/b"])
    assert storage.list_folder("a") == ([], [])


def test_names_outside_the_contract_do_not_stop_a_listing(storage: Storage, root: Path) -> None:
    storage.create("a", b"1")
    (root / "tab\there").write_bytes(b"")
    (root / os.fsdecode(b"not utf-8 \xff")).write_bytes(b"")
    (root / "dangling").symlink_to(root / "nowhere")
    assert [info.path for info in storage.list_tree("")] == ["a"]


def test_folders_are_listed_once_however_many_links_lead_to_them(
    storage: Storage, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    storage.create("p/a", b"1")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "b").write_bytes(b"2")
    (root / "latest").symlink_to("p")
    (root / "loop").symlink_to(".")
    (root / "p" / "up").symlink_to(root.parent)
    (root / "moved").symlink_to(elsewhere)
    assert [info.path for info in storage.list_tree("")] == ["moved/b", "p/a"]
    assert storage.list_folder("")[0] == ["moved", "p"]


def test_writing_into_a_folder_that_others_empty(storage: Storage, root: Path) -> None:
    """A write succeeds even if a delete removes the emptied folder at the same moment."""
    done = Event()

    def empty() -> None:
        while not done.is_set():
            storage.delete(["p/q/theirs"])
            storage.put("p/q/theirs", b"")

    other = Thread(target=empty)
    other.start()
    try:
        for number in range(300):
            storage.create(f"p/q/{number}", b"1")
            storage.publish(f"p/q/{number}", "p/q/published")
            storage.delete([f"p/q/{number}", "p/q/published"])
            storage.list_tree("")
    finally:
        done.set()
        other.join()
    assert all(info.name == "theirs" for info in storage.list_tree(""))
    assert not [name for name in files(root) if "#" in name]


def test_files_that_follow_each_other_while_they_are_listed_do_not_all_get_lost(
    storage: Storage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing contains at least one file, if each file is deleted after two newer ones exist."""
    for number in ("1", "2"):
        storage.create(f"lock/{number}", b"")

    def hand_over_twice() -> None:
        for number, old in (("3", "1"), ("4", "2")):
            storage.create(f"lock/{number}", b"")
            storage.delete([f"lock/{old}"])

    with between_names_and_sizes(hand_over_twice, monkeypatch):
        _, objects = storage.list_folder("lock")
    assert [info.name for info in objects] == ["3", "4"]


@contextmanager
def between_names_and_sizes(
    action: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Run an action once, in the middle of a listing."""
    scandir, todo = os.scandir, [action]

    @contextmanager
    def interrupted(folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(folder) as entries:
            named = list(entries)
        if todo:
            todo.pop()()
        yield iter(named)

    with monkeypatch.context() as changed:
        changed.setattr(os, "scandir", interrupted)
        yield
    assert not todo


@pytest.mark.parametrize("folder", [".hoodie/.aux/prepared", ".hoodie/metadata/.hoodie/.temp"])
def test_the_folders_of_commits_are_kept_while_their_table_exists(
    storage: Storage, root: Path, folder: str
) -> None:
    properties = f"{folder.rpartition('/.hoodie/')[0]}/.hoodie/hoodie.properties".lstrip("/")
    storage.create(properties, b"x")
    storage.create(f"{folder}/1/a", b"x")
    storage.delete([f"{folder}/1/a"])
    assert (root / folder).is_dir()
    assert not (root / folder / "1").exists()
    storage.delete([properties])
    assert not (root / ".hoodie").exists()


@pytest.mark.parametrize("data", [b"", b"x"], ids=["empty", "not empty"])
@pytest.mark.parametrize("is_folder", [True, False], ids=["folder", "broken link"])
def test_a_file_cannot_be_created_where_something_else_is(
    storage: Storage, root: Path, data: bytes, is_folder: bool
) -> None:
    """Without the check, ``create`` would try again and again."""
    root.mkdir(parents=True)
    if is_folder:
        (root / "a").mkdir()
    else:
        (root / "a").symlink_to(root / "nowhere")
    with pytest.raises(InvalidPath, match="a folder or a broken link"):
        storage.create("a", data)
