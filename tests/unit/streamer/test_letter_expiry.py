"""Dead letters are deleted by the day, when the whole day is older than the retention."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from lakemark.errors import InvalidConfig
from lakemark.execution.runner import LocalRunner
from lakemark.operations.create import create_table
from sinks.letter_layout import day_of, dead_letter_spec
from streamer.checks.tables import check_letters
from streamer.config.errors import ConfigError
from streamer.config.load import validated
from streamer.event_text import describe
from streamer.events import Event, PartitionsExpired, UnresolvedLettersExpire
from streamer.letter_expiry import LetterExpiry
from streamer.pipeline import open_sink
from streamer.sources.kafka import KafkaSource
from streamer.table_setup import dead_letters_location
from tests.json_stream import JsonStream
from tests.rejection_days import Days, count_by_path
from tests.unit.sinks.test_letters_by_day import DAY_1, DAY_2, bad
from tests.unit.sinks.test_replay import STRICT, somewhere
from tests.unit.streamer.test_opened_sink import Topic

MONTH = timedelta(days=30)


def test_whole_days_are_deleted_after_unresolved_letters_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    days, location = Days(monkeypatch), somewhere()
    stream = JsonStream(location, STRICT)
    stream.write([*bad("a", "b"), b"no JSON"])
    days.advance()
    stream.write(bad("c"))
    JsonStream(location).replay().run("offset < 2")
    stream = JsonStream(location, STRICT)
    place, events = stream.rejects.table.location, list[Event]()
    now, seconds = datetime(2100, 3, 31, 23, 59, 59, tzinfo=UTC), 0.0
    expiry = LetterExpiry(
        stream.rejects, MONTH, LocalRunner(1), events.append, lambda: now, lambda: seconds
    )
    expiry.run_if_due()
    assert not events, "the last letter of the day is a second too young"

    now += timedelta(seconds=1)
    expiry.run_if_due()
    assert not events, "the next check is due after an hour"
    seconds = 3600.0
    expiry.run_if_due()
    reported, deleted = events
    assert reported == UnresolvedLettersExpire(1, (DAY_1,), place.url)
    assert isinstance(deleted, PartitionsExpired)
    assert deleted.partitions == (DAY_1,)
    assert "1 unresolved dead letter will be deleted" in describe(reported)
    assert count_by_path(place) == {DAY_2: 1}
    days.advance()
    stream.write(bad("d"))
    assert count_by_path(place) == {DAY_2: 1, "rejected_on=2100-03-03": 1}


def test_days_without_unresolved_letters_are_deleted_without_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Days(monkeypatch)
    location, events = somewhere(), list[Event]()
    JsonStream(location, STRICT).write(bad("a"))
    JsonStream(location).replay().run(None)
    stream = JsonStream(location, STRICT)
    later = datetime(2101, 1, 1, tzinfo=UTC)
    LetterExpiry(stream.rejects, MONTH, LocalRunner(1), events.append, lambda: later).run_if_due()
    assert [type(one) for one in events] == [PartitionsExpired]
    assert count_by_path(stream.rejects.table.location) == {}
    assert JsonStream(location).replay().run(None).passed == 0


def test_only_paths_of_days_have_a_day() -> None:
    assert day_of("rejected_on=2026-11-29") == datetime(2026, 11, 29, tzinfo=UTC)
    for path in ("", "rejected_on=__HIVE_DEFAULT_PARTITION__", "2026-11-29", "on=2026-11-29"):
        assert day_of(path) is None


def config(folder: Path, **dead_letters: Any) -> Any:
    return validated(
        {
            "source": {"bootstrap_servers": "b:1", "topic": "t"},
            "decode": {"schema": {"id": "string"}},
            "table": {"path": str(folder / "rows"), "record_key": "id"},
            "dead_letters": dead_letters,
        }
    )


@pytest.mark.parametrize("retention", ["30", "12h", "0d", "-1d", "x"])
def test_retention_that_is_no_time_or_less_than_a_day_is_refused(
    tmp_path: Path, retention: str
) -> None:
    with pytest.raises(ConfigError, match=r"dead_letters\.retention"):
        config(tmp_path, retention=retention)
    with pytest.raises(ConfigError, match=r"dead_letters\.retention: 30d has no effect"):
        config(tmp_path, retention="30d", enabled=False)
    assert config(tmp_path, retention="30d").dead_letters.kept_for() == MONTH
    assert config(tmp_path).dead_letters.kept_for() is None


def test_table_without_partitions_is_continued_but_has_no_retention(tmp_path: Path) -> None:
    old = config(tmp_path)
    spec = replace(dead_letter_spec("rows_dead_letters", by_day=False), metadata_table=False)
    create_table(dead_letters_location(old), spec)
    assert check_letters(old) is not None
    _, (_, letters) = open_sink(old, cast(KafkaSource, Topic()))
    assert not letters.table.properties.partition_fields
    with pytest.raises(InvalidConfig, match="has no partitions, because an earlier version"):
        check_letters(config(tmp_path, retention="30d"))
    with pytest.raises(InvalidConfig, match="has no partitions, because an earlier version"):
        open_sink(config(tmp_path, retention="30d"), cast(KafkaSource, Topic()))
