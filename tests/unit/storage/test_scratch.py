"""Scratch folders: gone with their process, however that ended, and never before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from table.storage import scratch
from table.storage.scratch import scratch_folder

#: Opens a folder, tells its name, and holds it until it is told to end.
_HOLDER = """
import sys
from table.storage.scratch import scratch_folder
with scratch_folder("held") as folder:
    (folder / "rows").write_text("spilled")
    print(folder, flush=True)
    sys.stdin.read()
"""

#: Opens one folder after the other beside others that do so, each time as a process that is new.
_IN_TURN = """
from table.storage import scratch
for turn in range(100):
    scratch._remove_abandoned.cache_clear()
    with scratch.scratch_folder("turn") as folder:
        (folder / "rows").write_text(str(turn))
        scratch._remove_abandoned.cache_clear()
        scratch._remove_abandoned(str(folder.parent))
        assert (folder / "rows").read_text() == str(turn)
"""

_ONE_OF_THE_PROCESS = """
import os, sys
from table.storage.scratch import scratch_of_this_process
folder = scratch_of_this_process("spark")
assert folder == scratch_of_this_process("spark")
(folder / "block").write_text("shuffled")
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
assert (folder / "block").exists()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where all of them lie, for a process that has not looked there yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    scratch._remove_abandoned.cache_clear()
    return tmp_path


def test_a_folder_is_new_private_and_gone_at_the_end(place: Path) -> None:
    with scratch_folder("merge") as one, scratch_folder("merge") as other:
        assert one != other
        assert list(one.iterdir()) == list(other.iterdir()) == []
        assert one.stat().st_mode & 0o777 == 0o700
        (one / "rows").write_text("spilled")
    assert not list(place.iterdir())


def test_an_error_inside_leaves_nothing(place: Path) -> None:
    with pytest.raises(ConnectionError), scratch_folder("merge") as folder:
        (folder / "rows").write_text("spilled")
        raise ConnectionError
    assert not list(place.iterdir())


def test_what_a_killed_process_left_goes_with_the_next_start() -> None:
    with _holder() as (process, left):
        process.kill()
        process.wait()
        assert (left / "rows").exists()
        with scratch_folder("merge"):
            assert not left.exists()


def test_what_a_stopped_process_holds_stays() -> None:
    with _holder() as (process, held):
        process.send_signal(signal.SIGSTOP)
        with scratch_folder("merge"):
            assert (held / "rows").read_text() == "spilled"
        process.send_signal(signal.SIGCONT)
        process.communicate()
        assert process.returncode == 0
        assert not held.exists()


def test_processes_that_begin_at_once_keep_what_each_of_them_holds(place: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", _IN_TURN]) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert not list(place.iterdir())


def test_what_only_has_the_name_of_one_stays(place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (place / f"{scratch._PREFIX}link").symlink_to(elsewhere)
    (place / f"{scratch._PREFIX}file").touch()
    with scratch_folder("merge"):
        pass
    left = {"elsewhere", f"{scratch._PREFIX}file", f"{scratch._PREFIX}link"}
    assert set(os.listdir(place)) == left
    assert (elsewhere / "kept").exists()


def test_the_folder_of_a_process_is_gone_when_it_exits(place: Path) -> None:
    subprocess.run([sys.executable, "-c", _ONE_OF_THE_PROCESS], check=True)
    assert not list(place.iterdir())


@contextmanager
def _holder() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that holds a folder, and that folder."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()
