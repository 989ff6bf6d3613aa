"""Requests are made at the same time on a remote store, and one after the other on a local disk."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from threading import Barrier, get_ident
from types import FrameType
from uuid import uuid4

import pytest

from lakemark.errors import SnapshotChanged
from lakemark.read.base_file import open_data_files
from lakemark.read.log_file_pool import open_logs
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.parallel_requests import request_all

_WAIT_S = 30.0


class StopRequested(BaseException):
    """Raised by the handler of a signal."""


def remote() -> Storage:
    return open_storage(StorageLocation(f"memory://{uuid4().hex}"))


def pool_threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("ThreadPoolExecutor")}


def test_requests_to_a_remote_store_do_not_wait_for_each_other() -> None:
    together = Barrier(3)

    def answer(item: int) -> int:
        together.wait(_WAIT_S)  # broken unless three requests wait at the same time
        return 10 * item

    for storage in (remote(), FolderStorage(remote(), "folder")):
        assert request_all(storage, answer, [3, 1, 2]) == [30, 10, 20]


def test_requests_to_a_local_disk_are_made_by_the_calling_thread(tmp_path: Path) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    assert set(request_all(storage, lambda _: get_ident(), range(3))) == {get_ident()}
    assert request_all(remote(), lambda _: get_ident(), [1]) == [get_ident()]


def test_first_failed_request_raises_its_error_after_all_have_ended() -> None:
    ended: list[int] = []

    def answer(item: int) -> None:
        ended.append(item)
        if item:
            message = f"request {item}"
            raise ValueError(message)

    with pytest.raises(ValueError, match="request 2"):
        request_all(remote(), answer, [0, 2, 1])
    assert sorted(ended) == [0, 1, 2]


def test_a_signal_that_interrupts_the_call_ends_it_without_the_remaining_requests() -> None:
    known = pool_threads()

    def answer(item: int) -> None:
        if item == 500:  # probably all requests wait for a thread now
            os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.005)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise StopRequested

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(StopRequested):
            request_all(remote(), answer, range(5_000))
        assert pool_threads() <= known, "threads that still make requests"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_file_that_was_removed_before_or_after_opening_is_named() -> None:
    storage = remote()
    large = bytes(3 << 20)  # read in ranges
    for path in ("p/a", "p/b"):
        storage.put(path, large)
    with open_data_files(storage, ["p/a", "p/b"]) as files:
        assert files["p/b"].read() == large
        storage.delete(["p/b"])
        files["p/b"].seek(0)
        with (
            pytest.raises(SnapshotChanged, match="p/b was removed"),
            open_data_files(storage, ["p/a", "p/b"]),
        ):
            pass

    def read_a_removed_file() -> None:
        with open_data_files(storage, ["p/a"]) as opened:
            storage.delete(["p/a"])
            opened["p/a"].read()

    with pytest.raises(SnapshotChanged, match="p/a"):
        read_a_removed_file()


def test_logs_that_were_opened_together_are_read_without_further_requests() -> None:
    storage = remote()
    paths = [f"p/{number}" for number in range(20)]
    for path in paths:
        storage.put(path, path.encode())
    with open_logs(storage) as logs:
        logs.open_together([*paths[:3], "p/none", *paths[3:]])
        storage.delete(paths[:5])
        assert [logs.file(path).read() for path in paths[:5]] == [p.encode() for p in paths[:5]]
        assert logs.file(paths[19]).read() == b"p/19"
        with pytest.raises(SnapshotChanged, match="p/none was removed"):
            logs.file("p/none").read()
