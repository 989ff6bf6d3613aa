"""A storage on a local disk forces files at the right time, and reports failures of the disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakemark.errors import StorageUnavailable
from lakemark.spark.runner import DurableTask
from lakemark.storage import Storage, StorageLocation, durability, open_storage
from lakemark.storage.durability import sync_process
from lakemark.storage.folder_storage import FolderStorage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(StorageLocation(str(tmp_path / "table")))


@pytest.fixture
def forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names below the folder of the table that were forced, in order."""
    names: list[str] = []

    def fsync(descriptor: int) -> None:
        target = os.readlink(f"/proc/self/fd/{descriptor}")
        if target.startswith(str(tmp_path / "table")):
            names.append(os.path.relpath(target, tmp_path / "table").partition("#")[0])

    monkeypatch.setattr("os.fsync", fsync)
    return names


def write_streaming(storage: Storage, path: str) -> None:
    file = storage.create_streaming(path)
    file.write(b"rows")
    file.close()


def test_many_files_are_forced_once(storage: Storage, forced: list[str]) -> None:
    for number in range(3):
        write_streaming(storage, f"north/{number}.log")
    assert forced == []
    storage.make_durable()
    assert sorted(forced) == [".", "north", "north/0.log", "north/1.log", "north/2.log"]
    forced.clear()
    storage.make_durable()
    assert forced == []


@pytest.mark.parametrize("is_durable", [False, True])
def test_publication_forces_no_file_of_other_threads(
    storage: Storage, forced: list[str], is_durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put("aux/prepared", b"content", may_be_cut=True)
    if is_durable:
        storage.make_durable()
    write_streaming(storage, "north/a.log")  # as another thread does
    forced.clear()

    def link(source: str, target: str, call: Callable[[str, str], None] = os.link) -> None:
        forced.append("link")
        call(source, target)

    monkeypatch.setattr("os.link", link)
    storage.publish("aux/prepared", "timeline/instant")
    before = forced[: forced.index("link")]
    assert before == ([] if is_durable else ["aux/prepared"])
    assert {"timeline", "."} <= set(forced[len(before) :])
    assert "north/a.log" not in forced
    storage.make_durable()
    assert "north/a.log" in forced


def test_publication_of_a_lost_file_fails(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put("prepared", b"content", may_be_cut=True)
    monkeypatch.setattr("os.fsync", failing("prepared", errno.ENOSPC))
    for _ in range(2):
        with pytest.raises(StorageUnavailable, match="prepared"):
            storage.publish("prepared", "instant")
    assert storage.head("instant") is None


def test_publication_whose_name_could_not_be_forced_is_repeated(
    storage: Storage, forced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put("prepared", b"content")
    storage.make_durable()
    forced.clear()
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", failing("/timeline", errno.ENOSPC))
        with pytest.raises(StorageUnavailable):
            storage.publish("prepared", "timeline/instant")
    storage.publish("prepared", "timeline/instant")
    assert {"timeline", "timeline/instant"} <= set(forced)


def test_time_that_a_file_has_is_not_forced_again(storage: Storage, forced: list[str]) -> None:
    storage.put("a.log", b"rows")
    touch(storage)
    storage.make_durable()
    assert forced.count("a.log") == 2
    touch(storage)
    storage.make_durable()
    assert forced.count("a.log") == 2


def test_content_that_may_not_be_cut_is_forced_before_it_appears(
    storage: Storage, forced: list[str]
) -> None:
    storage.create("plan", b"content")
    storage.put("properties", b"content")
    storage.create("marker", b"")
    assert forced == ["plan", "properties"]


def test_a_deletion_is_forced_with_the_folder_that_remains(
    storage: Storage, forced: list[str]
) -> None:
    storage.create("north/a", b"1")
    storage.make_durable()
    forced.clear()
    storage.delete(["north/a"])
    storage.make_durable()
    assert forced == ["."]


def test_files_of_a_table_inside_the_table_are_forced_with_it(
    storage: Storage, forced: list[str]
) -> None:
    FolderStorage(storage, "inner").create("a", b"1", may_be_cut=True)
    storage.make_durable()
    assert sorted(forced) == [".", "inner", "inner/a"]


def test_what_is_of_use_to_running_processes_alone_is_not_forced(
    storage: Storage, forced: list[str]
) -> None:
    inner = FolderStorage(storage, ".hoodie/metadata")
    for one in (storage, inner):
        for path in (".heartbeat/1", ".locks/table_lock.json.1"):
            one.create(f".hoodie/{path}", b"1", may_be_cut=True)
        one.delete([".hoodie/.heartbeat/1"])
    storage.make_durable()
    assert forced == []


def test_a_folder_above_is_forced_again_only_if_it_changed(
    storage: Storage, forced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakemark.storage.durability._CLOCK_STEP_S", -1.0)
    storage.create("a/b/1", b"1", may_be_cut=True)
    storage.make_durable()
    forced.clear()
    storage.create("a/b/2", b"1", may_be_cut=True)
    storage.make_durable()
    assert sorted(forced) == ["a/b", "a/b/2"]
    forced.clear()
    os.mkdir(f"{storage.location.url}/a/by_another_process")
    storage.create("a/b/3", b"1", may_be_cut=True)
    storage.make_durable()
    assert sorted(forced) == ["a", "a/b", "a/b/3"]


def test_a_folder_above_that_changed_just_now_is_forced_again(
    storage: Storage, forced: list[str]
) -> None:
    storage.create("a/1", b"1", may_be_cut=True)
    storage.make_durable()
    forced.clear()
    storage.create("a/2", b"1", may_be_cut=True)
    storage.make_durable()
    assert sorted(forced) == [".", "a", "a/2"]


def test_storages_of_one_root_sync_the_writes_of_either(
    storage: Storage, forced: list[str]
) -> None:
    write_streaming(open_storage(storage.location), "a.log")
    storage.make_durable()
    assert "a.log" in forced


def test_an_executor_forces_its_files_before_it_answers(
    storage: Storage, forced: list[str]
) -> None:
    task: DurableTask[str, None] = DurableTask(lambda path: write_streaming(storage, path))
    task("a.log")
    assert sorted(forced) == [".", "a.log"]


def failing(name: str, number: int) -> Callable[[int], None]:
    """Return an ``fsync`` that fails for one file; like Linux, it reports this only once."""
    failures = [OSError(number, os.strerror(number))]

    def fsync(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(name) and failures:
            raise failures.pop()

    return fsync


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_file_that_the_disk_lost_is_never_durable(
    storage: Storage, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", failing("a.log", number))
    write_streaming(storage, "a.log")
    for _ in range(2):
        with pytest.raises(StorageUnavailable, match=r"a\.log"):
            storage.make_durable()
    storage.delete(["a.log"])
    write_streaming(storage, "a.log")
    storage.make_durable()


@pytest.fixture
def without_threads() -> None:
    """Make the next call that forces files start threads, like the first one of a process."""
    durability._shared_threads.cache_clear()


@pytest.mark.usefixtures("without_threads")
@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), KeyboardInterrupt()])
def test_files_are_forced_after_an_interrupted_attempt(
    storage: Storage, forced: list[str], error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_streaming(storage, "a.log")
    write_streaming(storage, "b.log")

    def refuse(_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("threading.Thread.start", refuse)
        with pytest.raises(type(error)):
            storage.make_durable()
    forced.clear()
    storage.make_durable()
    assert {"a.log", "b.log"} <= set(forced)


@pytest.mark.usefixtures("without_threads")
def test_lost_file_is_reported_after_an_interrupted_attempt(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss that only an interrupted attempt noticed is reported by the next attempt."""
    for number in range(3):
        write_streaming(storage, f"{number}.log")
    start: Callable[[threading.Thread], None] = threading.Thread.start
    started: list[threading.Thread] = []
    error = RuntimeError("can't start new thread")

    def start_first(thread: threading.Thread) -> None:
        if started:
            raise error
        started.append(thread)
        start(thread)

    monkeypatch.setattr("os.fsync", failing("0.log", errno.ENOSPC))
    with monkeypatch.context() as patch:
        patch.setattr("threading.Thread.start", start_first)
        with pytest.raises(RuntimeError):
            storage.make_durable()
    with pytest.raises(StorageUnavailable, match=r"0\.log"):
        storage.make_durable()


def test_file_written_while_it_is_forced_is_forced_again(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[str] = []

    def fsync(descriptor: int) -> None:
        forced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        if forced.count("a") == 1 and forced[-1] == "a":
            storage.put("a", b"2", may_be_cut=True)

    storage.put("a", b"1", may_be_cut=True)
    monkeypatch.setattr("os.fsync", fsync)
    storage.make_durable()
    storage.make_durable()
    assert forced.count("a") == 2


def fail_once(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, name: str, number: int = errno.ENOSPC
) -> None:
    monkeypatch.setattr("os.fsync", failing(name, number))
    with pytest.raises(StorageUnavailable):
        storage.make_durable()


def test_lost_file_that_another_process_deletes_stops_nothing(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_streaming(storage, "a.log")
    fail_once(storage, monkeypatch, "a.log")
    os.unlink(f"{storage.location.url}/a.log")
    write_streaming(storage, "b.log")
    storage.make_durable()
    sync_process()


def test_lost_file_that_another_process_replaces_stops_nothing(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_streaming(storage, "a.log")
    fail_once(storage, monkeypatch, "a.log")
    other = Path(storage.location.url, "other")
    other.write_bytes(b"rows")
    other.replace(f"{storage.location.url}/a.log")
    storage.make_durable()


@pytest.mark.parametrize("may_be_cut", [False, True])
def test_lost_file_that_is_replaced_stops_nothing(
    storage: Storage, may_be_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_streaming(storage, "a.log")
    fail_once(storage, monkeypatch, "a.log")
    storage.put("a.log", b"new rows", may_be_cut=may_be_cut)
    storage.make_durable()


def touch(storage: Storage) -> None:
    storage.set_modified_at("a.log", datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "act",
    [
        touch,
        lambda storage: write_streaming(storage, "a.log"),
        lambda storage: storage.create("a.log", b"rows"),
        lambda storage: storage.create("a.log", b"rows", may_be_cut=True),
        lambda storage: publish_again(storage, "a.log"),
    ],
)
def test_lost_file_stays_lost_if_its_content_is_not_written_again(
    storage: Storage, act: Callable[[Storage], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing the same content again does not hide the loss, if nothing is actually written."""
    write_streaming(storage, "a.log")
    fail_once(storage, monkeypatch, "a.log")
    with suppress(StorageUnavailable):
        act(storage)
    with pytest.raises(StorageUnavailable, match=r"a\.log"):
        storage.make_durable()


def publish_again(storage: Storage, path: str) -> None:
    storage.put("prepared", b"rows")
    storage.publish("prepared", path)


def test_existing_file_of_the_same_content_is_forced(storage: Storage, forced: list[str]) -> None:
    """A file that already exists is forced, because its writer may not have forced it yet."""
    os.makedirs(storage.location.url)
    Path(storage.location.url, "plan").write_bytes(b"content")
    storage.create("plan", b"content")
    forced.clear()
    storage.make_durable()
    assert "plan" in forced


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_folder_that_failed_once_is_forced_again(
    storage: Storage, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_streaming(storage, "north/a.log")
    fail_once(storage, monkeypatch, "/north", number)
    forced = []
    monkeypatch.setattr("os.fsync", lambda fd: forced.append(os.readlink(f"/proc/self/fd/{fd}")))
    storage.make_durable()
    assert f"{storage.location.url}/north" in forced


def test_files_are_forced_once_the_process_may_open_files_again(
    storage: Storage, forced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_streaming(storage, "a.log")
    write_streaming(storage, "b.log")

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr("os.open", refuse)
        with pytest.raises(StorageUnavailable):
            storage.make_durable()
    storage.make_durable()
    assert {"a.log", "b.log"} <= set(forced)


def test_a_disk_that_cannot_force_folders_is_used_without(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", failing("/table", errno.EINVAL))
    storage.create("a", b"1")
    storage.make_durable()
    assert storage.read("a") == b"1"


_FORKS = """
import os, sys
from lakemark.storage import StorageLocation, open_storage

storage = open_storage(StorageLocation(sys.argv[1]))

def force(*names):
    for name in names:
        storage.create(name, b"rows")
    storage.make_durable()

force("a.log", "b.log")
child = os.fork()
force(f"c{child == 0}.log", f"d{child == 0}.log")
if child == 0:
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_forces_its_files(tmp_path: Path) -> None:
    """A forked process forces its files without the threads of its parent, which it lacks."""
    command = [sys.executable, "-c", _FORKS, str(tmp_path / "table")]
    assert subprocess.run(command, timeout=60, check=True).returncode == 0
    assert (tmp_path / "table" / "cTrue.log").exists()
