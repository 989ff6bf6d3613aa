"""``lakemark subscribe`` delivers each change of each commit once, wherever it was killed."""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

import lakemark
from lakemark.model.feed_position import FeedPosition
from lakemark.operations.change_feed import FeedType
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.cli import FAILED, MISUSED, OK, main
from streamer.subscribe import file_target
from streamer.subscribe.cursor import Cursor
from streamer.subscribe.errors import TargetRefused, TargetUnavailable
from streamer.subscribe.file_target import FileTarget
from streamer.subscribe.stream_target import StreamTarget
from streamer.subscribe.subscription import Start, Subscription
from streamer.subscribe.target import ChangeText, Target
from tests import waiting
from tests.depth import sample
from tests.unit.operations.tables import FAST, SCHEMA, rows

CURSOR = Cursor("file:///lake/orders", FeedType.CDC, FeedPosition("", ""))


class Quiet:
    """A listener that only counts."""

    def __init__(self) -> None:
        self.failures = 0

    def started(self, cursor: Cursor, *, is_resumed: bool) -> None: ...

    def delivered(self, commit: object, count: int) -> None: ...

    def waits(self, pending: object) -> None: ...

    def failed(self, error: Exception, pause_s: float) -> None:
        self.failures += 1


@pytest.fixture
def table(tmp_path: Path) -> lakemark.Table:
    """A table with five commits, of which one is a delete and one a compaction."""
    table = lakemark.create(
        tmp_path / "orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        buckets=1,
        cdc="data_before",
        multi_writer=FAST,
    )
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 2)))
    table.upsert(rows(("a", "north", 2, 3), ("c", "north", 2, 4)))
    table.compact()
    table.delete(["c"])
    return table


def subscription(
    table: lakemark.Table,
    open_target: Callable[[], Target],
    listener: Quiet | None = None,
    start: str = "earliest",
) -> Subscription:
    opened = open_table(StorageLocation(table.location))
    return Subscription(opened, FeedType.CDC, open_target, Start(start), listener or Quiet())


def delivered(table: lakemark.Table, start: str = "earliest") -> str:
    """Return all lines, delivered at once."""
    out = io.StringIO()
    subscription(table, lambda: StreamTarget(out), start=start).run(None)
    return out.getvalue()


def subscribe(table: lakemark.Table, *options: str) -> int:
    return main(["subscribe", table.location, *options])


def ops(text: str) -> list[tuple[str, str]]:
    return [(one["op"], one["key"]) for one in map(json.loads, text.splitlines())]


def test_lines_have_the_commit_and_the_row_before_and_after(table: lakemark.Table) -> None:
    lines = [json.loads(line) for line in delivered(table).splitlines()]
    assert [(one["op"], one["key"]) for one in lines[-3:]] == [("u", "a"), ("i", "c"), ("d", "c")]
    *_, last = table.timeline.completed()
    assert lines[-1] == {
        "op": "d",
        "commit": last.requested_at,
        "completed_at": last.completed_at,
        "partition": "north",
        "key": "c",
        "before": {"id": "c", "region": "north", "ts": 2, "v": 4},
        "after": None,
    }


def test_each_line_is_in_the_file_once_wherever_the_process_was_killed(
    table: lakemark.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, deaths = tmp_path / "target", list[Path]()
    folder.mkdir()

    def die() -> None:
        deaths.append(tmp_path / f"dead_{len(deaths)}")
        shutil.copytree(folder, deaths[-1])

    def dying(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            die()
            if name == "pwrite":  # only a part reaches the disk
                descriptor, data, position = arguments
                os.pwrite(descriptor, data[: len(data) // 2], position)
                die()
            return getattr(os, name)(*arguments)

        return call

    steps = ("ftruncate", "pwrite", "fsync", "replace")
    with monkeypatch.context() as patch:
        watched = SimpleNamespace(**{**vars(os), **{name: dying(name) for name in steps}})
        patch.setattr(file_target, "os", watched)
        subscription(table, lambda: FileTarget(folder / "changes.jsonl")).run(None)
    die()
    expected = delivered(table)
    assert (folder / "changes.jsonl").read_text() == expected
    for died in sample(deaths, one_in=2):
        file = died / "changes.jsonl"
        subscription(table, lambda file=file: FileTarget(file)).run(None)  # type: ignore[misc]
        assert file.read_text() == expected, died


def test_lines_beyond_the_cursor_are_removed_at_the_next_start(
    table: lakemark.Table, tmp_path: Path
) -> None:
    path = tmp_path / "changes.jsonl"
    subscription(table, lambda: FileTarget(path)).run(None)
    with path.open("a") as file:
        file.write("lines of a commit that was not delivered, and was rolled back meanwhile")
    subscription(table, lambda: FileTarget(path)).run(None)
    assert path.read_text() == delivered(table)


def test_start_at_the_newest_commit_is_stored_before_anything_is_delivered(
    table: lakemark.Table, tmp_path: Path
) -> None:
    path = tmp_path / "changes.jsonl"
    for ts in (5, 6):
        subscription(table, lambda: FileTarget(path), start="latest").run(None)
        table.upsert(rows(("a", "north", ts, ts)))
    subscription(table, lambda: FileTarget(path), start="latest").run(None)
    assert ops(path.read_text()) == [("u", "a"), ("u", "a")]


def test_delivery_whose_outcome_is_unknown_is_not_repeated(
    table: lakemark.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.subscribe.subscription._FIRST_PAUSE_S", 0.0)
    path, listener = tmp_path / "changes.jsonl", Quiet()

    class Lossy(FileTarget):
        """Stores each cursor, and then loses the answer."""

        def deliver(self, *given: Any) -> int:
            super().deliver(*given)
            message = "no answer"
            raise TargetUnavailable(message)

    opened: list[Target] = []

    def open_target() -> Target:
        opened.append((Lossy if len(opened) < 3 else FileTarget)(path))
        return opened[-1]

    subscription(table, open_target, listener).run(None)
    assert (path.read_text(), listener.failures) == (delivered(table), 3)


def test_following_subscription_delivers_new_commits_until_stopped(
    table: lakemark.Table, tmp_path: Path
) -> None:
    path = tmp_path / "changes.jsonl"
    following = subscription(table, lambda: FileTarget(path), start="latest")
    thread = Thread(target=following.run, args=(0.01,))
    thread.start()
    try:
        waiting.until(lambda: path.with_name("changes.jsonl.cursor").exists())
        table.upsert(rows(("a", "north", 5, 5)))
        waiting.until(lambda: path.read_text().count("\n") == 1)
        table.delete(["a", "b"])
        waiting.until(lambda: path.read_text().count("\n") == 3)
    finally:
        following.stop()
        thread.join()
    assert ops(path.read_text()) == [("u", "a"), ("d", "a"), ("d", "b")]


def test_command_continues_and_restarts(
    table: lakemark.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "changes.jsonl"
    assert subscribe(table, "--to", str(path)) == OK
    first = path.read_text()
    table.upsert(rows(("a", "north", 3, 5)))
    # Where the first start begins does not matter any more.
    assert subscribe(table, "--to", str(path), "--from", "earliest") == OK
    assert ops(path.read_text()) == [*ops(first), ("u", "a")]
    before = str(table.timeline.completed()[-2].completed_at)
    assert subscribe(table, "--to", str(path), "--restart", "--from", before) == OK
    assert ops(path.read_text()) == [*ops(first), ("u", "a"), ("u", "a")]
    capsys.readouterr()
    assert subscribe(table, "--to", "-", "--type", "incremental", "--from", before) == OK
    assert ops(capsys.readouterr().out) == [("upsert", "a")]


def test_subscription_continues_after_a_compaction_that_was_undone(
    tmp_path: Path, table: lakemark.Table
) -> None:
    path = tmp_path / "changes.jsonl"
    compaction = table.compact().instants[-1]
    subscription(table, lambda: FileTarget(path)).run(None)
    table.rollback(compaction)
    subscription(table, lambda: FileTarget(path)).run(None)
    table.upsert(rows(("d", "north", 9, 9)))
    subscription(table, lambda: FileTarget(path)).run(None)
    assert path.read_text() == delivered(table)
    assert ops(path.read_text())[-1] == ("i", "d")


def test_lost_or_undone_commits_are_refused_with_the_remedy(
    table: lakemark.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = ["--to", str(tmp_path / "changes.jsonl")]
    assert subscribe(table, *to) == OK
    table.rollback(table.timeline.completed()[-1].requested_at)
    assert subscribe(table, *to) == FAILED
    printed = capsys.readouterr().err
    assert "was undone by a rollback or restore" in printed
    undone_after = printed.rpartition("--restart --from ")[2].split()[0]
    table.upsert(rows(("d", "north", 3, 9)))
    assert subscribe(table, *to, "--restart", "--from", undone_after) == OK
    assert ops((tmp_path / "changes.jsonl").read_text())[-1] == ("i", "d")
    for ts in range(3, 12):
        table.upsert(rows(("a", "north", ts, ts)))
        table.compact()
    table.clean(retain_commits=1)
    capsys.readouterr()
    assert subscribe(table, *to) == FAILED
    printed = capsys.readouterr().err
    assert "can no longer be read. To deliver the later commits" in printed  # the only remedy
    time = printed.rpartition("--restart --from ")[2].split()[0]
    assert subscribe(table, *to, "--restart", "--from", time) == OK


def test_file_of_another_process_table_or_program_is_refused(
    table: lakemark.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "changes.jsonl"
    assert subscribe(table, "--to", str(path)) == OK
    held = FileTarget(path)
    assert subscribe(table, "--to", str(path)) == FAILED
    assert "another process delivers" in capsys.readouterr().err
    held.close()
    assert subscribe(table, "--to", str(path), "--type", "incremental") == FAILED
    assert "is of type cdc, not incremental" in capsys.readouterr().err
    content = path.read_text()
    path.write_text(content[:-5])
    assert subscribe(table, "--to", str(path)) == FAILED
    assert "restore the file" in capsys.readouterr().err
    path.write_text(content)
    cursor = path.with_name("changes.jsonl.cursor")
    cursor.write_text("{}")
    assert subscribe(table, "--to", str(path)) == FAILED
    assert "changes.jsonl.cursor: expected size_bytes" in capsys.readouterr().err
    cursor.unlink()
    assert subscribe(table, "--to", str(path)) == FAILED
    assert "name another file" in capsys.readouterr().err
    assert path.read_text() == content


def test_file_from_which_lines_cannot_be_removed_is_refused() -> None:
    with pytest.raises(TargetRefused, match="--to -"):
        FileTarget(Path(os.devnull))


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("missing/changes.jsonl", "No such file or directory; create its folder"),
        ("file/changes.jsonl", "Not a directory; a part of the path is a file"),
        ("folder", "Is a directory; it is a folder"),
        ("x" * 300, "File name too long; choose a shorter name"),
    ],
)
def test_path_that_cannot_be_opened_is_refused_with_its_remedy(
    tmp_path: Path, name: str, remedy: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(TargetRefused, match=f"cannot open .*{name}: {remedy}"):
        FileTarget(tmp_path / name)


def test_cursor_that_cannot_be_written_is_refused_with_its_remedy(
    tmp_path: Path, table: lakemark.Table
) -> None:
    path = tmp_path / "changes.jsonl"
    (tmp_path / "changes.jsonl.cursor.part").mkdir()
    with pytest.raises(TargetRefused, match=r"changes\.jsonl\.cursor\.part: Is a directory"):
        subscription(table, lambda: FileTarget(path)).run(None)


def test_file_that_would_exceed_the_limit_of_the_process_is_refused_with_its_remedy(
    tmp_path: Path, table: lakemark.Table
) -> None:
    path, limits = tmp_path / "changes.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(FileTarget(path)) as target:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))
        try:
            with pytest.raises(TargetRefused, match=r"File too large; .*ulimit -f"):
                target.deliver([ChangeText("a", '{"op":"i"}', is_delete=False)], CURSOR)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(
    ("number", "error", "remedy"),
    [
        (errno.ENOSPC, TargetUnavailable, "No space left on device; free space on its disk"),
        (errno.EDQUOT, TargetUnavailable, "quota exceeded; .* raise the quota"),
        (errno.EIO, TargetUnavailable, "Input/output error; check the disk"),
        (errno.EACCES, TargetRefused, "Permission denied; give this user the right"),
        (errno.EROFS, TargetRefused, "Read-only file system; name a file on a disk"),
    ],
)
def test_failed_write_names_the_error_and_its_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    error: type[Exception],
    remedy: str,
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with closing(FileTarget(tmp_path / "changes.jsonl")) as target:
        monkeypatch.setattr(os, "pwrite", fail)
        with pytest.raises(error, match=remedy):
            target.deliver([ChangeText("a", "{}", is_delete=False)], CURSOR)


@pytest.mark.parametrize("act", ["removed", "replaced", "shortened"])
def test_file_that_another_program_changes_meanwhile_is_refused(
    table: lakemark.Table, tmp_path: Path, act: str
) -> None:
    path = tmp_path / "changes.jsonl"
    with closing(FileTarget(path)) as target:
        cursor = subscription(table, lambda: target)._cursor
        change = ChangeText("a", "{}", is_delete=False)
        target.deliver([change], cursor)
        if act == "shortened":
            os.truncate(path, 1)
        else:
            path.unlink()
        if act == "replaced":
            path.write_text("{}\n")
        with pytest.raises(TargetRefused, match="restore the file"):
            target.deliver([change], cursor)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--to", "-", "--restart"], "--restart needs --from"),
        (["--to", "-", "--interval", "5"], "--interval needs --follow"),
        (["--to", "-", "--tombstones"], "--tombstones needs --to kafka://HOST:PORT/TOPIC"),
        (["--to", "s3://bucket/x"], "expected a path on the local disk"),
        (["--to", "kafka://host:1"], "expected kafka://HOST:PORT/TOPIC"),
        (["--to", "kafka://me:secret@host:1/t"], "credentials belong in --kafka-properties"),
        (["--to", "KAFKA://me:secret@host:1/t"], "credentials belong in --kafka-properties"),
        (["--to", "s3://me:secret@host/t"], "a path on the local disk"),
        (["--to", "kafka://host:1/t", "--cursor-topic", "t"], "name another topic"),
        (["--to", "-", "--from", "tomorrow"], "'tomorrow' is not a time"),
    ],
    ids=lambda given: given if isinstance(given, str) else given[-1],
)
def test_wrong_options_are_explained(
    table: lakemark.Table, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert subscribe(table, *options) == MISUSED
    printed = capsys.readouterr().err
    assert message in printed
    assert "secret" not in printed
