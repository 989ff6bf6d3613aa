"""lakemark writes and maintains tables whose timeline is in local time, on a local disk."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from lakemark.config import keys
from lakemark.config.table_properties import TableProperties
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import COMMITS, State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.change_version import change_table_version
from lakemark.operations.create import create_on
from lakemark.operations.metadata_table import metadata_differences, rebuild_metadata_table
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.read.queries import Snapshot
from lakemark.services.cleaning_plan import CleaningPolicy, Retention, earliest_retained
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.properties_file import read_properties, replace_properties
from lakemark.timeline.clock import TimelineClock, TimelineZoneUnknown
from lakemark.transaction.heartbeat import HeartbeatPolicy, is_fresh
from streamer.cli import MISUSED, OK, main
from streamer.table_setup import find_table
from tests.tables import INDEX, SCHEMA, Row, commit, contents, spec

ZONES = ["America/New_York", "Asia/Tokyo", "Asia/Kathmandu"]
V6, V9 = FormatVersion.V6, FormatVersion.V9
EVERY_COMMIT = CompactionPolicy(after_commits=1)

InZone = Callable[[str], None]


@pytest.fixture
def in_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[InZone]:
    """A function that moves this process into a time zone."""

    def move(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield move
    monkeypatch.undo()
    time.tzset()


def make_local(folder: Path, version: FormatVersion = V9) -> None:
    """Create an empty table in local time, as Apache Hudi does by default."""
    storage = open_storage(StorageLocation(str(folder)))
    create_on(storage, replace(spec(version=version), metadata_table=False))
    properties = read_properties(storage)
    in_local_time = {**properties.values, keys.TIMELINE_TIMEZONE: "LOCAL"}
    replace_properties(storage, properties, TableProperties(in_local_time), lambda: None)


def opened(folder: Path, zone: str | None = None) -> OpenTable:
    return open_table(StorageLocation(str(folder)), timezone=zone)


def writer_in(folder: Path, zone: str | None) -> TableWriter:
    """Open a writer as a process does that has just started, with this zone as its setting."""
    to = TableWriter(opened(folder, zone), SCHEMA, WriterSettings(INDEX))
    to.recover()
    return to


def write(folder: Path, zone: str | None, v: int) -> Instant:
    return commit(writer_in(folder, zone), [Row("a", v, v), Row("b", v, v, region="south")])


def age(time_of: str | None, zone: str) -> timedelta:
    assert time_of is not None
    return datetime.now(UTC) - TimelineClock(ZoneInfo(zone)).parse(time_of)


def rows(folder: Path) -> dict[str, tuple[int, int]]:
    """Read the rows without a setting for the zone."""
    read = opened(folder).scan(columns=["id", "ts", "v"]).to_reader().read_all().to_pylist()
    return {row["id"]: (row["ts"], row["v"]) for row in read}


@pytest.mark.parametrize("version", [V6, V9])
@pytest.mark.parametrize("zone", ZONES)
def test_instants_are_in_the_zone_that_the_setting_names(
    tmp_path: Path, zone: str, version: FormatVersion
) -> None:
    make_local(tmp_path, version)
    done = [write(tmp_path, zone, v) for v in (1, 2)]
    to = writer_in(tmp_path, zone)
    done += [instant for instant, _ in to.compact_if_due(EVERY_COMMIT, LocalRunner(1))]
    times = [at or "" for one in done for at in (one.requested_at, one.completed_at)]
    assert times == sorted(times)
    assert all(timedelta(0) <= age(at, zone) < timedelta(minutes=1) for at in times)
    assert opened(tmp_path, zone).timeline.completed(*COMMITS) == tuple(done)
    assert metadata_differences(opened(tmp_path, zone)) == []
    assert rows(tmp_path) == {"a": (2, 2), "b": (2, 2)}


@pytest.mark.parametrize("zone", ZONES)
def test_writers_in_the_zone_and_elsewhere_take_turns(
    tmp_path: Path, in_zone: InZone, zone: str
) -> None:
    make_local(tmp_path)
    last = ""
    for v in range(1, 7):
        in_zone("UTC" if v % 2 else zone)
        # By its machine's zone as soon as two instants show that it is the table's.
        done = write(tmp_path, zone if v % 2 or v < 3 else None, v)
        assert last < done.requested_at < (done.completed_at or "")
        last = done.completed_at or ""
        assert rows(tmp_path) == {"a": (v, v), "b": (v, v)}


def test_a_table_whose_zone_is_not_known_is_read_and_not_written(
    tmp_path: Path, in_zone: InZone
) -> None:
    make_local(tmp_path)
    first = write(tmp_path, "America/New_York", 1)
    write(tmp_path, "America/New_York", 2)
    in_zone("Asia/Tokyo")
    before = files(tmp_path)
    with pytest.raises(TimelineZoneUnknown, match=r"show UTC-0[45]:00; this machine is at UTC"):
        TableWriter(opened(tmp_path), SCHEMA, WriterSettings(INDEX))
    table = opened(tmp_path)
    for change in (
        lambda: rebuild_metadata_table(table),
        lambda: table.context.generate_time(None),
    ):
        with pytest.raises(TimelineZoneUnknown, match=r"table\.timeline_timezone"):
            change()
    assert files(tmp_path) == before
    assert rows(tmp_path) == {"a": (2, 2), "b": (2, 2)}
    at = first.requested_at
    on_the_wall = f"{at[:4]}-{at[4:6]}-{at[6:8]} {at[8:10]}:{at[10:12]}:{at[12:14]}.{at[14:]}"
    assert contents_as_of(table, on_the_wall) == {"a": 1, "b": 1}
    millis = TimelineClock(ZoneInfo("America/New_York")).parse(at).timestamp() * 1000
    assert contents_as_of(table, f"{millis:.0f}") == {"a": 1, "b": 1}


def files(folder: Path) -> set[tuple[str, int]]:
    found = (path for path in folder.rglob("*") if path.is_file() and ".locks" not in path.parts)
    return {(str(path), path.stat().st_mtime_ns) for path in found}


def contents_as_of(table: OpenTable, as_of: str) -> dict[str, int]:
    read = table.scan(Snapshot(as_of), ["id", "v"]).to_reader().read_all().to_pylist()
    return {row["id"]: row["v"] for row in read}


def test_a_copy_with_new_modification_times_needs_the_setting(
    tmp_path: Path, in_zone: InZone
) -> None:
    make_local(tmp_path / "t")
    in_zone("Asia/Tokyo")
    for v in (1, 2):
        write(tmp_path / "t", "Asia/Tokyo", v)
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    for path in (tmp_path / "copy").rglob("*"):
        os.utime(path, (2e9, 2e9))
    write(tmp_path / "t", None, 3)
    with pytest.raises(TimelineZoneUnknown, match="do not show one"):
        write(tmp_path / "copy", None, 3)
    write(tmp_path / "copy", "Asia/Tokyo", 3)
    assert rows(tmp_path / "copy") == rows(tmp_path / "t") == {"a": (3, 3), "b": (3, 3)}


@pytest.mark.parametrize("zone", ZONES)
def test_hours_that_are_retained_and_ages_of_writers_are_counted_in_the_zone(
    tmp_path: Path, zone: str
) -> None:
    make_local(tmp_path)
    done = [write(tmp_path, zone, v) for v in (1, 2)]
    table, policy = opened(tmp_path, zone), CleaningPolicy(Retention.HOURS, hours=1)
    clock, now = table.store.clock, datetime.now(UTC)
    earliest = earliest_retained(table.timeline, policy, now + timedelta(minutes=30), clock)
    assert earliest is not None and earliest.requested_at == done[0].requested_at
    later = now + timedelta(minutes=90)
    assert earliest_retained(table.timeline, policy, later, clock) is None
    pending = Instant(clock.format(now - timedelta(seconds=90)), done[0].action, State.REQUESTED)
    assert is_fresh(pending, HeartbeatPolicy(), clock)
    assert not is_fresh(pending, HeartbeatPolicy(interval_s=30), clock)


@pytest.mark.parametrize("zone", ZONES)
def test_a_change_of_version_keeps_the_moments_and_what_shows_the_zone(
    tmp_path: Path, in_zone: InZone, zone: str
) -> None:
    make_local(tmp_path)
    in_zone(zone)
    for v in (1, 2):
        write(tmp_path, zone, v)
    change_table_version(opened(tmp_path), V6, LocalRunner(1))
    before = times(opened(tmp_path, zone))
    folder = tmp_path / ".hoodie"
    for requested_at, completed_at in before.items():
        (path,) = (p for p in folder.glob(f"{requested_at}.*commit"))
        assert age(completed_at, zone) == pytest.approx(
            datetime.now(UTC) - datetime.fromtimestamp(path.stat().st_mtime, UTC),
            abs=timedelta(seconds=1),
        )
    change_table_version(opened(tmp_path), V9, LocalRunner(1))
    assert times(opened(tmp_path, zone)) == before
    assert read_properties(opened(tmp_path).storage).values[keys.TIMELINE_TIMEZONE] == "LOCAL"
    write(tmp_path, None, 3)
    assert metadata_differences(opened(tmp_path)) == []
    assert rows(tmp_path) == {"a": (3, 3), "b": (3, 3)}


def times(table: OpenTable) -> dict[str, str | None]:
    return {i.requested_at: i.completed_at for i in table.timeline.completed(*COMMITS)}


def test_commands_that_write_take_the_zone_and_refuse_without_it(
    tmp_path: Path, in_zone: InZone, capsys: pytest.CaptureFixture[str]
) -> None:
    make_local(tmp_path)
    for v in (1, 2):
        write(tmp_path, "America/New_York", v)
    in_zone("Asia/Tokyo")
    skew = ["--clock-skew-ms", "0"]
    assert main(["table", "show", str(tmp_path)]) == OK
    assert main(["table", "compact", str(tmp_path), "--plan"]) == OK
    assert main(["table", "compact", str(tmp_path), "--run", *skew]) == MISUSED
    assert "--timeline-timezone" in capsys.readouterr().err
    assert not opened(tmp_path).timeline.pending()
    named = ["--timeline-timezone", "America/New_York"]
    assert main(["table", "compact", str(tmp_path), "--run", *named, *skew]) == OK
    (done,) = opened(tmp_path).timeline.completed(COMMITS[0])
    assert age(done.completed_at, "America/New_York") < timedelta(minutes=1)


def test_a_pipeline_that_creates_a_table_takes_no_zone_but_utc(tmp_path: Path) -> None:
    location = StorageLocation(str(tmp_path / "t"))
    assert find_table(location, "UTC") is None
    with pytest.raises(TimelineZoneUnknown, match="remove the setting"):
        find_table(location, "Asia/Tokyo")


def test_a_new_table_is_in_utc(tmp_path: Path, in_zone: InZone) -> None:
    in_zone("Asia/Tokyo")
    create_on(open_storage(StorageLocation(str(tmp_path))), spec())
    done = write(tmp_path, None, 1)
    assert age(done.requested_at, "UTC") < timedelta(minutes=1)
    assert contents(opened(tmp_path).storage) == {"a": (1, 1), "b": (1, 1)}
