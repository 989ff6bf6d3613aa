from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta, timezone
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.config.table_properties import TableType
from lakemark.errors import InvalidConfig
from lakemark.model.action import Action
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.open_table import open_table
from lakemark.read import time_travel
from lakemark.read.query_instant import parse_query_instant
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.storage import StorageLocation, open_storage
from lakemark.timeline.clock import UTC_CLOCK, TimelineClock
from tests import plans
from tests.depth import examples
from tests.table_services import as_of, make_plain, new_storage
from tests.tables import Row, commit, make, write_files, writer
from tests.unit.read.histories import (
    Batch,
    History,
    Service,
    batches,
    compacted,
    live,
    outcome,
    write,
)

_TWO_HOURS_EAST = TimelineClock(timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("20260102030405678", "20260102030405678"),
        ("20260102030405", "20260102030405"),
        ("00000000000000", "00000000000000"),
        ("2026-01-02", "20260102000000000"),
        ("2026-01-02 03:04:05", "20260102030405999"),
        ("2026-01-02 03:04:05.678", "20260102030405678"),
        ("2026-01-02T03:04:05", "20260102030405999"),
        ("2026-01-02T03:04:05.678", "20260102030405678"),
        ("2026-01-02 03:04", "20260102030400999"),
        ("2026-01-02T03:04", "20260102030400999"),
        ("2026-01-02T03:04Z", "20260102030400999"),
        ("2026-01-02T05:04:05+02:00", "20260102030405999"),
        ("2026-01-01 22:04:05.678-05:00", "20260102030405678"),
        ("1767323045", "20260102030405000"),
        ("1767323045678", "20260102030405678"),
        (" 2026-01-02 ", "20260102000000000"),
    ],
)
def test_times_are_parsed_as_in_apache_hudi(text: str, instant: str) -> None:
    assert parse_query_instant(text, UTC_CLOCK) == instant


def test_only_times_with_a_zone_are_converted_to_that_of_the_timeline() -> None:
    assert parse_query_instant("1767323045", _TWO_HOURS_EAST) == "20260102050405000"
    assert parse_query_instant("2026-01-02", _TWO_HOURS_EAST) == "20260102000000000"
    assert parse_query_instant("2026-01-02T03:04", _TWO_HOURS_EAST) == "20260102030400999"
    assert parse_query_instant("2026-01-02T03:04Z", _TWO_HOURS_EAST) == "20260102050400999"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026",
        "20261301000000",
        "2026-02-30",
        "2026-01-02 03",
        "2026-01-02 03:04+2",
        "2026-01-02T25:04Z",
        "2026-01-02Z",
        "2026-01-02 03:04:05.6",
    ],
)
def test_invalid_time_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"accepted: yyyyMMddHHmmss\[SSS\], yyyy-MM-dd"):
        parse_query_instant(text, UTC_CLOCK)


@given(st.text("0123456789-T:.+Z ٣", max_size=29))
def test_any_text_parses_to_an_instant_or_is_refused(text: str) -> None:
    try:
        instant = parse_query_instant(text, UTC_CLOCK)
    except InvalidConfig:
        return
    assert re.fullmatch(r"[0-9]{14}|[0-9]{17}", instant)


@settings(max_examples=examples(12), deadline=None)
@given(batches())
def test_each_instant_shows_the_changes_until_then(sent: list[Batch]) -> None:
    history = write(sent)
    for count, instant in enumerate(history.instants, start=1):
        found = _payloads(history, instant.requested_at)
        assert found == live(outcome(sent[:count]))


@settings(max_examples=examples(12), deadline=None)
@given(compacted())
def test_compactions_do_not_change_past_states(steps: list[Batch | Service]) -> None:
    history = write(steps)
    for count, instant in enumerate(history.instants, start=1):
        found = _payloads(history, instant.requested_at)
        assert found == live(outcome(history.batches[:count]))


def test_state_before_the_first_commit_is_empty() -> None:
    history = write([[Row("a")]])
    assert _payloads(history, "2020-01-01") == {}


def test_state_that_is_not_final_is_refused() -> None:
    location = StorageLocation(f"memory://{uuid4().hex}/lake")
    make(storage := open_storage(location))
    to = writer(storage)
    done = commit(to, [Row("a")])
    write_files(to, [Row("a", 1)])
    table = open_table(location)
    time_travel.plan(table.view(), table.store, done.requested_at)
    with pytest.raises(InvalidConfig, match="not final"):
        time_travel.plan(table.view(), table.store, "2999-01-01")


def test_read_optimized_state_is_that_of_the_last_compaction() -> None:
    history = write([[Row("a", v=1)], [Row("a", 1, v=2)]])
    table, last = history.table, history.instants[-1].requested_at
    plan = time_travel.plan(table.view(), table.store, last, read_optimized=True)
    assert _values(plans.read(plan, history.reader, ["id", "v"])) == {"a": 1}
    assert _payloads(history, last) == {"a": 2}


@pytest.mark.parametrize("version", WRITTEN)
def test_cleaned_state_is_refused_after_the_clean_was_archived(
    version: FormatVersion,
) -> None:
    storage = new_storage()
    make_plain(storage, TableType.COPY_ON_WRITE, version)
    written = [commit(writer(storage), [Row("a", ts)]) for ts in range(5)]
    assert clean(writer(storage).table, CleaningPolicy(commits=2))
    written += [commit(writer(storage), [Row(f"b{ts}", ts)]) for ts in range(5, 12)]
    assert archive(writer(storage).table, ArchivalPolicy(2, 3), CleaningPolicy(commits=1))
    table = writer(storage).table
    assert not table.timeline.completed(Action.CLEAN)
    for commit_ in written[:3]:
        with pytest.raises(InvalidConfig, match="cleaned"):
            as_of(table, commit_.requested_at)
    for commit_ in written[3:]:
        assert "a" in as_of(table, commit_.requested_at)


def _payloads(history: History, as_of: str) -> dict[str, int]:
    plan = time_travel.plan(history.table.view(), history.table.store, as_of)
    return _values(plans.read(plan, history.reader, ["id", "v"]))


def _values(batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["v"] for row in rows}
