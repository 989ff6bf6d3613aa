"""Dead letters are in the partition of the day on which their record was rejected first."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.errors import StorageUnavailable, WriteConflict
from lakemark.operations.duplicate_keys import Duplicates
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from sinks.letter_layout import dead_letter_spec
from tests import json_stream
from tests.json_stream import JsonStream
from tests.rejection_days import Days, count_by_path, letters_at
from tests.unit.sinks.test_replay import STRICT, somewhere

DAY_1, DAY_2 = "rejected_on=2100-03-01", "rejected_on=2100-03-02"


def bad(*names: str) -> list[dict[str, object]]:
    """Return records with an unknown field, which ``STRICT`` rejects."""
    return [{"id": name, "ts": 1, "other": 1} for name in names]


def inserting(location: StorageLocation, **settings: Any) -> JsonStream:
    """Run a pipeline whose table has neither keys nor an ordering."""
    return JsonStream(
        location, **settings, record_key=(), ordering=(), index=None, duplicates=Duplicates.ALLOW
    )


def fail_once(monkeypatch: pytest.MonkeyPatch, stream: JsonStream, error: Exception) -> None:
    """Let the next commit to the table fail, after that to the dead letters."""
    commit = stream.rows.commit

    def fail(*_arguments: object, **_named: object) -> None:
        monkeypatch.setattr(stream.rows, "commit", commit)
        raise error

    monkeypatch.setattr(stream.rows, "commit", fail)


def test_days_have_folders_and_queries_skip_those_of_other_days(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    days, stream = Days(monkeypatch), JsonStream(somewhere(), STRICT)
    stream.write([*bad("a", "b"), {"id": "c", "ts": 1}])
    days.advance()
    stream.write(bad("d"))
    table = open_table(stream.rejects.table.location)
    assert count_by_path(table.location) == {DAY_1: 2, DAY_2: 1}
    for where in ("rejected_on = '2100-03-02'", "rejected_at >= '2100-03-02 00:00:00'"):
        scan = table.scan(where=where)
        assert [one.group.partition_path for one in scan.slices] == [DAY_2]
        assert scan.to_reader().read_all().column("offset").to_pylist() == [3]


def test_record_that_is_rejected_again_after_a_crash_keeps_its_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    days, location = Days(monkeypatch), somewhere()
    died = inserting(location, policy=STRICT)
    died.write(bad("a"))
    days.advance(0.5)
    fail_once(monkeypatch, died, StorageUnavailable("the process dies here"))
    with pytest.raises(StorageUnavailable):
        died.write(bad("b", "c", "d"))
    days.advance()
    stream = inserting(location, policy=STRICT)
    stream.write(bad("b", "c"))
    stream.write(bad("d", "e"))
    letters = letters_at(stream.rejects.table.location)
    assert [row["offset"] for row in letters] == [0, 1, 2, 3, 4]
    assert [row["rejected_on"][-2:] for row in letters] == ["01", "02", "02", "02", "03"]

    corrected = inserting(location)
    assert corrected.replay(overwrites_newer=True).run(None).passed == 5
    assert corrected.replay(overwrites_newer=True).run(None).passed == 0
    found = open_table(location).scan(columns=["id"]).to_reader().read_all().column("id")
    assert Counter(found.to_pylist()) == Counter("abcde")


def test_record_keeps_its_day_if_a_restart_publishes_only_a_part_of_its_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    days, location = Days(monkeypatch, datetime.now(UTC) - timedelta(days=10)), somewhere()
    died = inserting(location, policy=STRICT)
    fail_once(monkeypatch, died, StorageUnavailable("the process dies here"))
    with pytest.raises(StorageUnavailable):
        died.write(bad("a", "b", "c", "d"))
    first = f"{days.now:%Y-%m-%d}"
    days.advance(10)
    inserting(location, policy=STRICT).write(bad("a", "b"))
    stream = inserting(location, policy=STRICT)
    stream.write(bad("c", "d"))
    letters = letters_at(stream.rejects.table.location)
    assert [(row["offset"], row["rejected_on"]) for row in letters] == [
        (offset, first) for offset in range(4)
    ]
    assert inserting(location).replay(overwrites_newer=True).run(None).passed == 4


def test_record_that_is_read_again_keeps_its_day_after_the_checkpoint_was_moved_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    days, location = Days(monkeypatch, datetime.now(UTC) - timedelta(days=10)), somewhere()
    stream = inserting(location, policy=STRICT)
    stream.write(bad("a", "b", "c"))
    days.advance(10)
    back = KafkaCheckpoint(stream.topic, {0: 1})
    stream.sink.commit_start(back)
    stream = inserting(location, policy=STRICT)
    stream.write(bad("b", "c", "d"))
    letters = letters_at(stream.rejects.table.location)
    assert [row["offset"] for row in letters] == [0, 1, 2, 3]
    assert len({row["rejected_on"] for row in letters[:3]}) == 1


def test_record_of_a_recreated_topic_is_no_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    days, location = Days(monkeypatch), somewhere()
    stream = inserting(location, policy=STRICT)
    stream.write(bad("a"))
    stream.sink.commit_start(KafkaCheckpoint(stream.topic, {0: 0}), "another id")
    days.advance()
    stream = inserting(location, policy=STRICT)
    later = datetime(2026, 1, 2, tzinfo=UTC)
    monkeypatch.setattr(json_stream, "RECORDED_AT", later)
    stream.write(bad("b"))
    letters = letters_at(stream.rejects.table.location)
    assert [(row["offset"], row["rejected_on"][-2:]) for row in letters] == [(0, "01"), (0, "02")]

    stream.sink.commit_start(KafkaCheckpoint(stream.topic, {0: 0}), "another id")
    days.advance()
    inserting(location, policy=STRICT).write(bad("b"))
    assert count_by_path(stream.rejects.table.location) == {DAY_1: 1, DAY_2: 1}


def test_attempts_to_write_a_batch_reject_its_records_at_one_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    days, stream = Days(monkeypatch), JsonStream(somewhere(), STRICT)
    commit = stream.rows.commit

    def fail(*_arguments: object, **_named: object) -> None:
        monkeypatch.setattr(stream.rows, "commit", commit)
        days.advance()
        message = "another writer"
        raise WriteConflict(message)

    monkeypatch.setattr(stream.rows, "commit", fail)
    stream.write(bad("a", "b"))
    assert count_by_path(stream.rejects.table.location) == {DAY_1: 2}


def test_replay_finds_and_marks_letters_in_their_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    days, location = Days(monkeypatch), somewhere()
    stream = JsonStream(location, STRICT)
    stream.write([*bad("a"), b"no JSON"])
    days.advance()
    stream.write([*bad("b"), b"no JSON"])
    days.advance()
    place = stream.rejects.table.location
    before = [(row["offset"], row["rejected_at"]) for row in letters_at(place)]

    corrected = JsonStream(location)
    done = corrected.replay().run("rejected_on = '2100-03-01'")
    assert (done.passed, sum(one.num_rows for one in done.failed)) == (1, 1)
    assert set(corrected.read()) == {"a"}
    assert [row["attempts"] for row in letters_at(place)] == [2, 2, 1, 1]
    assert corrected.replay().run(None).passed == 1
    assert set(corrected.read()) == {"a", "b"}

    letters = letters_at(place)
    assert [(row["offset"], row["rejected_at"]) for row in letters] == before
    assert [row["resolved_at"] is not None for row in letters] == [True, False, True, False]
    assert [row["attempts"] for row in letters] == [2, 3, 2, 2]
    assert count_by_path(place) == {DAY_1: 2, DAY_2: 2}


def test_table_without_partitions_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        json_stream, "dead_letter_spec", lambda name: dead_letter_spec(name, by_day=False)
    )
    days, location = Days(monkeypatch), StorageLocation(str(tmp_path / "orders"))
    stream = JsonStream(location, STRICT)
    stream.write(bad("a"))
    monkeypatch.setattr(json_stream, "dead_letter_spec", dead_letter_spec)
    days.advance()
    JsonStream(location, STRICT).write(bad("b"))
    rows = open_table(stream.rejects.table.location).scan().to_reader().read_all().to_pylist()
    assert {row["_hoodie_partition_path"] for row in rows} == {""}
    assert "rejected_on" not in rows[0]
    assert sorted(row["rejected_at"].day for row in rows) == [1, 2]
    assert JsonStream(location).replay().run(None).passed == 2
