"""Scratch folders are deleted after their process has ended, in whatever way, but never before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pytest

from lakemark.errors import StorageUnavailable
from lakemark.merge.spill import DIVISION_COUNT, SpilledDivisions
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.storage import (
    StorageLocation,
    durability,
    open_storage,
    scratch,
    spooled_file,
)
from lakemark.storage.scratch import scratch_folder, temporary_writes
from lakemark.timeline import lsm_writer
from lakemark.timeline.lsm_history import LsmHistory
from tests.unit.timeline.archives import HISTORY, new_storage

#: Opens a folder, tells its name, and holds it until it is told to end.
_HOLDER = """
import sys
from lakemark.storage.scratch import scratch_folder
with scratch_folder("held") as folder:
    (folder / "rows").write_text("spilled")
    print(folder, flush=True)
    sys.stdin.read()
"""

#: Opens one folder after the other beside others that do so, each time as a process that is new.
_IN_TURN = """
from lakemark.storage import scratch
for number in range(100):
    scratch._remove_abandoned.cache_clear()
    with scratch.scratch_folder("turn") as folder:
        (folder / "rows").write_text(str(number))
        scratch._remove_abandoned.cache_clear()
        scratch._remove_abandoned(str(folder.parent))
        assert (folder / "rows").read_text() == str(number)
"""

_ONE_OF_THE_PROCESS = """
import os, sys
from lakemark.storage.scratch import scratch_of_this_process
folder = scratch_of_this_process("spark")
assert folder == scratch_of_this_process("spark")
(folder / "block").write_text("shuffled")
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
assert (folder / "block").exists()
"""


_FULL = Path("/dev/full")

needs_full_disk = pytest.mark.skipif(
    not _FULL.exists(), reason="needs a device that is always full"
)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all scratch folders, for a process that has not cleaned it up yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    scratch._remove_abandoned.cache_clear()
    return tmp_path


def test_a_folder_is_new_private_and_deleted_at_the_end(root: Path) -> None:
    with scratch_folder("merge") as one, scratch_folder("merge") as other:
        assert one != other
        assert list(one.iterdir()) == list(other.iterdir()) == []
        assert one.stat().st_mode & 0o777 == 0o700
        (one / "rows").write_text("spilled")
    assert not list(root.iterdir())


def test_an_error_inside_leaves_nothing(root: Path) -> None:
    with pytest.raises(ConnectionError), scratch_folder("merge") as folder:
        (folder / "rows").write_text("spilled")
        raise ConnectionError
    assert not list(root.iterdir())


def test_the_process_forgets_the_files_of_a_folder_that_ended() -> None:
    """A stream that prepares files for years would otherwise need more and more memory."""
    known = set(durability._of_roots)
    with scratch_folder("buckets") as folder, scratch_folder("buckets") as other:
        for root in (folder, folder / "0", other):
            open_storage(StorageLocation(str(root))).create("north/rows", b"prepared")
        assert len(durability._of_roots) == len(known) + 3
        with scratch_folder("merge"):
            pass
        assert len(durability._of_roots) == len(known) + 3, "those of other folders are kept"
    assert set(durability._of_roots) == known


def test_what_a_killed_process_left_goes_with_the_next_start() -> None:
    with _holder() as (process, left):
        process.kill()
        process.wait()
        assert (left / "rows").exists()
        with scratch_folder("merge"):
            assert not left.exists()


def test_the_folder_of_a_stopped_process_is_kept() -> None:
    with _holder() as (process, held):
        process.send_signal(signal.SIGSTOP)
        with scratch_folder("merge"):
            assert (held / "rows").read_text() == "spilled"
        process.send_signal(signal.SIGCONT)
        process.communicate()
        assert process.returncode == 0
        assert not held.exists()


def test_processes_that_begin_at_once_keep_their_own_folders(root: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", _IN_TURN]) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert not list(root.iterdir())


def test_what_only_has_the_name_of_one_stays(root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (root / f"{scratch._PREFIX}link").symlink_to(elsewhere)
    (root / f"{scratch._PREFIX}file").touch()
    with scratch_folder("merge"):
        pass
    left = {"elsewhere", f"{scratch._PREFIX}file", f"{scratch._PREFIX}link"}
    assert set(os.listdir(root)) == left
    assert (elsewhere / "kept").exists()


def test_the_folder_of_a_process_is_deleted_when_it_exits(root: Path) -> None:
    subprocess.run([sys.executable, "-c", _ONE_OF_THE_PROCESS], check=True)
    assert not list(root.iterdir())


@contextmanager
def _holder() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Run a process that uses a scratch folder, and yield both."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def full_temporary_file(*arguments: object, **options: object) -> BinaryIO:
    return _FULL.open("w+b")


@needs_full_disk
def test_full_disk_of_the_temporary_folder_is_named_with_its_remedy(root: Path) -> None:
    with (
        pytest.raises(StorageUnavailable) as raised,
        scratch_folder("merge") as folder,
        temporary_writes("rows"),
    ):
        (folder / "rows").symlink_to(_FULL)
        (folder / "rows").write_text("spilled")
    assert str(raised.value) == (
        f"the disk of the temporary folder {root} is full (No space left on device while writing "
        "rows); free space on it, or set TMPDIR to a folder on a larger disk"
    )


@needs_full_disk
def test_rows_that_spill_to_a_full_disk_name_the_temporary_folder(root: Path) -> None:
    rows = pa.table({RECORD_KEY: [str(number) for number in range(1000)]})
    with SpilledDivisions(level=0) as spilled:
        (folder,) = root.iterdir()
        for division in range(DIVISION_COUNT):
            (folder / f"{division}.arrows").symlink_to(_FULL)
        with pytest.raises(StorageUnavailable, match=f"{root} is full.*memory for merging.*TMPDIR"):
            spilled.fill([rows])


@needs_full_disk
@pytest.mark.parametrize("count", [1, 20_000_000])
def test_a_file_on_its_way_to_an_object_store_names_the_temporary_folder(
    count: int, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", full_temporary_file)
    monkeypatch.setattr(spooled_file, "_IN_MEMORY_BYTES", 100)
    file = spooled_file.SpooledFile(lambda data, size_bytes: None)
    with pytest.raises(StorageUnavailable, match=f"{root} is full.*object store.*TMPDIR"):
        for _ in range(2):
            file.write(b"x" * max(count, 101))
        file.close()
    file.abort()


@needs_full_disk
def test_an_archive_file_that_fills_the_temporary_folder_names_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", full_temporary_file)
    monkeypatch.setattr(lsm_writer, "_IN_MEMORY_BYTES", 100)
    storage = new_storage()
    writer = lsm_writer.LsmWriter(storage, LsmHistory(storage, HISTORY), lambda: None)
    row = lsm_writer.ArchivedInstant("1", "2", "commit", b"{}")
    with pytest.raises(StorageUnavailable, match=f"{root} is full.*1_1_0.parquet.*TMPDIR"):
        writer.add(iter([row]), "1", "1")


def test_without_any_temporary_folder_the_error_names_tmpdir(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    with pytest.raises(StorageUnavailable, match=r"found in \['/tmp'\].*TMPDIR"):
        with scratch_folder("merge"):
            pass
