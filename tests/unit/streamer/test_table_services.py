"""``table compact``, ``clean``, ``archive``, ``rollback``, ``savepoint`` and ``restore`` work."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakemark.config.table_properties import TableType
from lakemark.execution.runner import LocalRunner, Result, Task
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.model.action import Action
from lakemark.operations.metadata_table import drop_metadata_table, metadata_differences
from lakemark.operations.savepoint import list_savepoints
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.folder_storage import FolderStorage
from lakemark.timeline.content import encode_savepoint
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER
from lakemark.transaction.multi_writer import MultiWriter
from streamer.cli import FAILED, MISUSED, OK, main
from streamer.commands import table_compact
from tests.golden.golden_table import unpack
from tests.tables import Row, commit, contents, data_files, make, write_files, writer

Rows = list[dict[str, Any]]
Run = Callable[..., Rows]


def table_at(folder: Path, table_type: TableType = TableType.MERGE_ON_READ) -> Storage:
    """Create a table of three commits of one row each; the second updates the first row."""
    storage = open_storage(StorageLocation(str(folder)))
    make(storage, table_type)
    for row in (Row("a", 1, 1), Row("a", 2, 2), Row("b", 3, 3)):
        commit(writer(storage), [row])
    return storage


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs a command on the table in ``t``, and returns the rows printed."""

    def on_table(what: str, *options: str) -> Rows:
        capsys.readouterr()
        words = ["table", what, str(tmp_path / "t"), *options, "--clock-skew-ms", "0", "--json"]
        assert main(words) == OK
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return on_table


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def timeline(storage: Storage) -> Timeline:
    return writer(storage).table.timeline


def names(storage: Storage) -> list[str]:
    return [i.requested_at for i in timeline(storage).completed(Action.DELTA_COMMIT)]


def test_compact_plans_schedules_and_runs(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = table_at(tmp_path / "t")
    expected, before = contents(storage), timeline(storage)
    (planned,) = run("compact")
    assert (planned["instant"], planned["partition"], planned["logs"]) == (None, "north", 1)
    assert timeline(storage) == before, "a plan that is printed changes nothing"

    (scheduled,) = run("compact", "--schedule")
    assert run("compact", "--schedule") == [], "what is pending is not planned again"
    assert run("compact", "--plan") == [scheduled]
    assert main(["table", "show", str(tmp_path / "t"), "--json"]) == OK
    shown = json.loads(capsys.readouterr().out)
    assert (shown["plans_pending"], shown["not_compacted"]) == (1, 3)
    assert 0 <= shown["oldest_plan_s"] < 600
    commit(writer(storage), [Row("a", 4, 4)], {"deltastreamer.checkpoint.key": "t,0:4"})
    (done,) = run("compact", "--run")
    assert scheduled["instant"] == done["instant"]
    assert (done["slices"], done["rows"]) == (1, 1)
    assert contents(storage) == {**expected, "a": (4, 4)}
    table = writer(storage).table
    (compacted,) = table.timeline.completed(Action.COMMIT)
    extra = table.store.read_commit(compacted).extra_metadata
    assert extra["deltastreamer.checkpoint.key"] == "t,0:4"
    assert extra["lakemark.bucket.count"] == "2"

    assert [row["rows"] for row in run("compact", "--run")] == [1], "the log since the plan"
    assert run("compact", "--run") == []
    assert contents(storage) == {**expected, "a": (4, 4)}


@pytest.mark.parametrize("kind", [(), ("--logs", "--min-logs", "1")])
def test_new_compaction_is_shown_only_if_none_is_pending(
    kind: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    storage = table_at(tmp_path / "t")
    for number in range(2):
        commit(writer(storage), [Row("s", number, number, region="south")])
    (scheduled,) = run("compact", "north", *kind, "--schedule")
    assert run("compact", "south", *kind) == [scheduled]
    (done,) = run("compact", "south", *kind, "--run")
    assert done["instant"] == scheduled["instant"]
    (planned,) = run("compact", "south", *kind)
    assert (planned["instant"], planned["partition"]) == (None, "south")


def test_compact_also_executes_a_pending_log_compaction(run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t")
    for number in range(3):
        commit(writer(storage), [Row("a", 5 + number, number)])
    expected = contents(storage)
    (scheduled,) = run("compact", "--logs", "--min-logs", "2", "--schedule")
    not_due = ("compact", "--after-commits", "100")
    assert run(*not_due) == [scheduled]
    (done,) = run(*not_due, "--run")
    assert done["instant"] == scheduled["instant"]
    assert run(*not_due, "--run") == []
    assert contents(storage) == expected


@pytest.mark.parametrize("output", [[], ["--json"]])
def test_a_command_that_only_plans_says_at_the_end_that_nothing_was_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: list[str]
) -> None:
    storage = table_at(tmp_path / "t")
    first, _, last = names(storage)
    before = files_in(tmp_path)
    for command in (
        "table compact TABLE",
        "table clean TABLE --retain-versions 1",
        "table archive TABLE --plan",
        f"table rollback TABLE {last}",
        f"table savepoint TABLE --create {last}",
        f"table restore TABLE --to {first}",
        "table upgrade TABLE --to 9",
        "checkpoint set TABLE orders,0:7",
        "checkpoint reset TABLE",
    ):
        words = [str(tmp_path / "t") if word == "TABLE" else word for word in command.split()]
        assert main([*words, *output]) == OK
        printed = capsys.readouterr()
        has_plan = bool(printed.out) and not printed.out.startswith("nothing")
        remedy = "; add --run to execute the plan" if has_plan else ""
        assert printed.err.splitlines()[-1] == f"nothing was changed{remedy}"
    assert files_in(tmp_path) == before


def test_a_command_that_writes_its_plan_or_only_lists_does_not_say_that_nothing_was_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table_at(tmp_path / "t")
    place = str(tmp_path / "t")
    assert main(["table", "compact", place, "--schedule"]) == OK
    assert capsys.readouterr().err == "only the plan was written; --run executes it\n"
    for command in (["compact", place, "--run"], ["savepoint", place]):
        assert main(["table", *command]) == OK
        assert "nothing was changed" not in capsys.readouterr().err


@pytest.mark.spark
def test_work_is_done_in_a_spark_session(spark: SparkSession, run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t")
    expected, jobs = contents(storage), spark.sparkContext.statusTracker()
    before = set(jobs.getJobIdsForGroup())
    (done,) = run("compact", "--run", "--runner", "spark")
    assert (done["slices"], done["rows"]) == (1, 1)
    assert set(jobs.getJobIdsForGroup()) > before, "it was done in the session"
    assert contents(storage) == expected
    assert not [one for one in writer(storage).table.view().latest_slices() if one.logs]

    before = set(jobs.getJobIdsForGroup())
    deleted = run("clean", "--run", "--runner", "spark", "--retain-versions", "1")
    assert set(jobs.getJobIdsForGroup()) > before
    assert len(deleted) == 2, "what the new base file replaces"
    assert not {f"{row['partition']}/{row['file']}" for row in deleted} & {*data_files(storage)}
    assert contents(storage) == expected


def test_clean_keeps_what_is_retained_and_what_a_savepoint_keeps(run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t", TableType.COPY_ON_WRITE)
    first = timeline(storage).completed(Action.COMMIT)[0].requested_at
    (planned,) = run("clean", "--retain-versions", "1")
    assert first in planned["file"]
    assert run("clean", "--plan") == [], "ten commits are retained"
    to_keep = run("savepoint", "--create", first)
    assert to_keep == [{**planned, "instant": first}]
    assert run("savepoint") == [], "a plan that is printed changes nothing"
    create = ("--create", first, "--user", "ann", "--comment", "why")
    (kept,) = run("savepoint", *create, "--run")
    assert (kept["instant"], kept["user"], kept["files"]) == (first, "ann", 1)
    assert run("clean", "--retain-versions", "1") == []
    assert run("savepoint", "--delete", first, "--plan") == to_keep
    assert run("savepoint") == [kept]
    assert run("savepoint", "--delete", first, "--run") == []

    (scheduled,) = run("clean", "--schedule", "--retain-versions", "1")
    assert run("clean") == [scheduled]
    assert scheduled["file"] == planned["file"]
    assert run("clean", "--run") == [scheduled]
    assert storage.head(f"north/{planned['file']}") is None
    assert contents(storage) == {"a": (2, 2), "b": (3, 3)}


def test_a_commit_whose_predecessor_was_cleaned_stays(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = table_at(tmp_path / "t", TableType.COPY_ON_WRITE)
    commit(writer(storage), [Row("b", 4, 4)])
    assert run("clean", "--run", "--retain-versions", "1")
    _, second, *_, newest = timeline(storage).completed(Action.COMMIT)
    reported = main(["table", "rollback", str(tmp_path / "t"), newest.requested_at, "--run"])
    assert (reported, "was cleaned" in capsys.readouterr().err) == (FAILED, True)
    reported = main(["table", "restore", str(tmp_path / "t"), "--to", second.requested_at])
    assert (reported, "may be gone" in capsys.readouterr().err) == (FAILED, True)
    assert contents(storage) == {"a": (2, 2), "b": (4, 4)}


def test_refused_savepoint_names_the_oldest_commit_that_is_possible(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = table_at(tmp_path / "t", TableType.COPY_ON_WRITE)
    first, *_ = timeline(storage).completed(Action.COMMIT)
    for number in (4, 5):
        commit(writer(storage), [Row("a", number, number)])
        assert run("clean", "--run", "--retain-commits", "1")
    words = ["table", "savepoint", str(tmp_path / "t"), "--run", "--clock-skew-ms", "0", "--create"]
    assert main([*words, first.requested_at]) == FAILED
    (oldest,) = re.findall(r"choose (\d+) or a later commit", capsys.readouterr().err)
    assert main([*words, oldest]) == OK


def test_archive_moves_what_is_over_the_limit(run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t", TableType.COPY_ON_WRITE)
    # With one, all instants since its newest compaction stay.
    drop_metadata_table(writer(storage).table)
    assert run("archive") == []
    limits = ("--min-commits", "1", "--max-commits", "2", "--retain-versions", "1")
    planned = run("archive", *limits)
    first = timeline(storage).completed(Action.COMMIT)[0].requested_at
    assert planned[0]["instant"] == first
    assert run("archive", "--run", *limits) == planned
    assert timeline(storage).find(first) is None
    assert contents(storage) == {"a": (2, 2), "b": (3, 3)}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            "--retain-commits 1",
            "because of the commits that cleaning retains (--retain-commits), archival begins",
        ),
        ("--retain-versions 1", "from {0} on stay active, because the next compaction counts"),
    ],
)
def test_archive_says_why_commits_above_the_limit_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str, reason: str
) -> None:
    storage = table_at(tmp_path / "t")
    drop_metadata_table(writer(storage).table)
    limits = "--min-commits 1 --max-commits 2"
    assert main(["table", "archive", str(tmp_path / "t"), *limits.split(), *options.split()]) == OK
    assert reason.format(*names(storage)) in " ".join(capsys.readouterr().out.split())


def test_archive_names_the_savepoint_that_keeps_commits(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = table_at(tmp_path / "t", TableType.COPY_ON_WRITE)
    drop_metadata_table(writer(storage).table)
    first = timeline(storage).completed(Action.COMMIT)[0].requested_at
    run("savepoint", "--create", first, "--run")
    limits = "--min-commits 1 --max-commits 2 --retain-versions 1"
    assert main(["table", "archive", str(tmp_path / "t"), *limits.split(), "--run"]) == OK
    out = " ".join(capsys.readouterr().out.split())
    assert f"{first} on stay active, because there is a savepoint of {first}" in out


def test_deletion_of_the_last_savepoint_says_that_none_is_left(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = table_at(tmp_path / "t")
    first = names(storage)[0]
    run("savepoint", "--create", first, "--run")
    assert main(["table", "savepoint", str(tmp_path / "t"), "--delete", first, "--run"]) == OK
    assert capsys.readouterr().out == "no savepoints are left\n"


def test_rollback_undoes_the_newest_commit(run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t")
    newest = names(storage)[-1]
    planned = run("rollback", newest)
    assert [newest in row["file"] for row in planned] == [True]
    assert contents(storage) == {"a": (2, 2), "b": (3, 3)}
    assert run("rollback", newest, "--run") == planned
    assert contents(storage) == {"a": (2, 2)}
    assert newest not in names(storage)


def test_restore_undoes_all_that_is_later(run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t")
    first, second, third = names(storage)
    assert [row["instant"] for row in run("restore", "--to", first)] == [third, second]
    assert contents(storage) == {"a": (2, 2), "b": (3, 3)}
    undone = run("restore", "--to", first, "--run")
    assert [row["instant"] for row in undone] == [third, second]
    assert contents(storage) == {"a": (1, 1)}


def test_restore_to_empty_undoes_all_commits(run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t")
    assert [row["instant"] for row in run("restore", "--to-empty")] == names(storage)[::-1]
    run("restore", "--to-empty", "--run")
    assert contents(storage) == {}
    assert metadata_differences(writer(storage).table) == []
    commit(writer(storage), [Row("c", 4, 4)])
    assert contents(storage) == {"c": (4, 4)}
    assert metadata_differences(writer(storage).table) == []


def test_old_savepoints_are_deleted_on_request(run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t")
    first, second, _ = names(storage)
    for name in (first, second):
        run("savepoint", "--create", name, "--run")
    assert run("savepoint", "--delete-older-than", "1d") == []
    (old,) = (tmp_path / "t/.hoodie/timeline").glob(f"{first}_*.savepoint")
    kept = list_savepoints(writer(storage).table)[first]
    aged = replace(kept, created_at_ms=kept.created_at_ms - 2 * 86_400_000)
    old.write_bytes(encode_savepoint(aged))
    assert {row["instant"] for row in run("savepoint", "--delete-older-than", "1d")} == {first}
    old.write_bytes(encode_savepoint(replace(aged, files={})))
    without_files = {"instant": first, "partition": None, "file": None}
    assert run("savepoint", "--delete-older-than", "1d") == [without_files]
    (left,) = run("savepoint", "--delete-older-than", "1d", "--run")
    assert left["instant"] == second


def test_orphans_are_listed_and_removed(run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t")
    to = writer(storage)
    (stat,) = write_files(to, [Row("x", 9, 9)])
    assert stat.path is not None
    late = storage.read(stat.path)
    to.abandon()
    storage.put(stat.path, late)
    assert run("remove-orphans") == [], "it was just written"
    old = time.time() - 4 * 86_400
    os.utime(tmp_path / "t" / stat.path, (old, old))
    (total,) = run("remove-orphans")
    assert (total["files"], total["bytes"], total["example"]) == (1, len(late), stat.path)
    assert (total["part"], total["kept"]) == ("the table", False)
    (listed,) = run("remove-orphans", "--files")
    assert (listed["file"], listed["reason"]) == (stat.path, "its instant was undone")
    assert storage.head(stat.path) is not None
    assert run("remove-orphans", "--run") == [total]
    assert storage.head(stat.path) is None
    assert run("remove-orphans", "--run") == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("table clean {t}", "nothing to clean"),
        ("table remove-orphans {t}", "no orphans"),
        (
            "table archive {t}",
            "nothing to archive: 3 commits are active, and archival begins with more than 30",
        ),
        ("table savepoint {t}", "no savepoints"),
        ("table upgrade {t} --to 9", "nothing to change: the table has version 9"),
        ("checkpoint reset {t}", "nothing to change: the table has no such checkpoint"),
    ],
)
def test_command_with_nothing_to_do_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    table_at(tmp_path / "t")
    command = words.format(t=tmp_path / "t").split()
    assert main(command) == OK
    assert capsys.readouterr().out == f"{message}\n"
    assert main([*command, "--json"]) == OK
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("rollback {t} 20200101000000000", MISUSED, "is not on the active timeline"),
        ("rollback {t} {first} --run", FAILED, "is later; roll that back first"),
        (
            "savepoint {t} --create 20200101000000000",
            MISUSED,
            "is not the requested time of a completed commit",
        ),
        ("savepoint {t} --delete {first} --run", MISUSED, "there is no savepoint"),
        ("restore {t} --run", MISUSED, "no restore is pending; name the commit to restore"),
        (
            "restore {t} --to 20200101000000000",
            MISUSED,
            "is not the requested time of a completed commit",
        ),
        ("archive {t} --min-commits 3 --max-commits 2", MISUSED, "at most 2 active commits"),
        ("compact {t}/nowhere", FAILED, "no Hudi table"),
    ],
)
def test_refused_command_prints_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, code: int, message: str
) -> None:
    storage = table_at(tmp_path / "t")
    text = words.format(t=tmp_path / "t", first=names(storage)[0])
    assert main(["table", *text.split()]) == code
    out, err = capsys.readouterr()
    assert message in err
    assert (out, err.count("\n")) == ("", 1)
    assert contents(storage) == {"a": (2, 2), "b": (3, 3)}


def test_the_newest_commit_stays_while_another_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = table_at(tmp_path / "t")
    write_files(writer(storage), [Row("c", 4, 4)])
    assert main(["table", "rollback", str(tmp_path / "t"), names(storage)[-1], "--run"]) == FAILED
    assert "is being written; stop its writer" in capsys.readouterr().err


def test_copy_on_write_tables_have_nothing_to_compact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table_at(tmp_path / "t", TableType.COPY_ON_WRITE)
    assert main(["table", "compact", str(tmp_path / "t"), "--run"]) == FAILED
    assert "is copy-on-write" in capsys.readouterr().err


@pytest.mark.parametrize(
    "what", ["compact", "clean", "archive", "rollback", "savepoint", "restore"]
)
def test_unsupported_table_is_not_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    root = unpack("v9_mor_virtual_keys", tmp_path).root
    properties = root / ".hoodie" / "hoodie.properties"
    stored = properties.read_text().replace("keygenerator.type=SIMPLE", "keygenerator.type=CUSTOM")
    properties.write_text(stored)
    operands = ["20200101000000000"] if what == "rollback" else []
    assert main(["table", what, str(root), *operands]) == FAILED
    assert "hoodie.populate.meta.fields is 'false'" in capsys.readouterr().err


PIPELINE = """
source: {{bootstrap_servers: "localhost:9092", topic: orders}}
table: {{path: {path}, record_key: id}}
cleaning: {{policy: keep_latest_file_versions, file_versions_retained: 1}}
concurrency: {{lock: {{provider: file_system, expire_minutes: 1}}}}
"""


def test_a_command_takes_lock_and_retention_from_a_pipeline(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = table_at(tmp_path / "t", TableType.COPY_ON_WRITE)
    config = tmp_path / "orders.yaml"
    config.write_text(PIPELINE.format(path=tmp_path / "t"))
    left = tmp_path / "t/.hoodie/lock"
    left.touch()
    os.utime(left, (0, 0))
    (deleted,) = run("clean", "--run", "--config", str(config))
    assert not left.exists(), "the lock that Apache Hudi left was taken over"
    assert storage.head(f"north/{deleted['file']}") is None
    config.write_text(PIPELINE.format(path=tmp_path / "other"))
    assert main(["table", "clean", str(tmp_path / "t"), "--config", str(config)]) == MISUSED
    assert "writes" in capsys.readouterr().err
    in_memory = PIPELINE.replace("file_system, expire_minutes: 1", "in_process")
    config.write_text(in_memory.format(path=tmp_path / "t"))
    assert main(["table", "clean", str(tmp_path / "t"), "--config", str(config)]) == MISUSED
    assert "repeat the command with --lock storage" in capsys.readouterr().err


def test_compaction_writes_base_files_as_the_pipeline_says(run: Run, tmp_path: Path) -> None:
    table_at(tmp_path / "t")
    config = tmp_path / "orders.yaml"
    text = PIPELINE.format(path=tmp_path / "t") + "base_files: {compression: snappy}\n"
    config.write_text(text.replace("{provider: file_system, expire_minutes: 1}", "{}"))
    assert run("compact", "--run", "--config", str(config))
    files = max((tmp_path / "t/north").glob("*.parquet"), key=lambda file: file.name[-25:])
    assert pq.read_metadata(files).row_group(0).column(0).compression == "SNAPPY"


def test_a_skew_of_clocks_that_would_keep_the_lock_from_all_others_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = table_at(tmp_path / "t")
    before = timeline(storage)
    words = ["table", "compact", str(tmp_path / "t"), "--run", "--clock-skew-ms", "200000"]
    assert main(words) == MISUSED
    assert "at most 30000 ms" in capsys.readouterr().err
    assert timeline(storage) == before


def test_command_emits_a_heartbeat_and_respects_those_of_other_writers(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = table_at(tmp_path / "t")
    beats: list[str] = []

    class Watching(LocalRunner):
        def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
            beats.extend(info.name for info in storage.list_folder(HEARTBEAT_FOLDER)[1])
            return super().map(function, tasks)

    monkeypatch.setattr(table_compact, "chosen_runner", lambda _: Watching(1))
    (done,) = run("compact", "--run")
    assert beats == [done["instant"]]
    assert storage.list_folder(HEARTBEAT_FOLDER)[1] == []

    other = writer(storage, multi_writer=MultiWriter(clock_skew_ms=0))
    written = write_files(other, [Row("c", 4, 4)])
    undo = ["table", "rollback", str(tmp_path / "t"), other.pending_instant, "--run"]
    assert main(undo) == FAILED
    assert "heartbeat is alive" in capsys.readouterr().err
    other.commit(written, {})
    assert contents(storage) == {"a": (2, 2), "b": (3, 3), "c": (4, 4)}


def test_metadata_table_is_maintained_with_its_table(run: Run, tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t")
    own = TimelineStore(FolderStorage(storage, METADATA_FOLDER))
    to = writer(storage)
    while len(own.load().completed(Action.DELTA_COMMIT)) < EVERY_DELTA_COMMITS:
        commit(to, [Row("b", 4, 4)])
    assert not own.load().completed(Action.COMMIT)
    assert run("archive", "--run") == []
    assert len(own.load().completed(Action.COMMIT)) == 1, "it was compacted"
    for _ in range(3 * EVERY_DELTA_COMMITS):
        commit(to, [Row("b", 4, 4)])
    files = {row["file"] for row in run("clean", "--run") if row["partition"].startswith(".hoodie")}
    assert files
    assert not [info for info in storage.list_tree(METADATA_FOLDER) if info.name in files]
    assert run("clean", "--run") == []
    assert metadata_differences(writer(storage).table) == []
