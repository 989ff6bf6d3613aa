"""Tables with slash-separated dates, written and read by a Python program."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakemark
from lakemark.keygen.slash_separated_dates import texts_of_path
from lakemark.read.pruning import SlicePruner
from tests.unit.operations.tables import FAST

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("born", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("n", pa.int64()),
    ]
)


def rows(*listed: tuple[str, int | None, int]) -> pa.Table:
    """Create rows with a key, a day of January 2026 and a value."""
    made = []
    for key, day, n in listed:
        at = None if day is None else datetime(2026, 1, day, 5, tzinfo=UTC)
        text = None if at is None else at.date().isoformat()
        made.append({"id": key, "day": text, "born": at, "at": at, "n": n})
    return pa.Table.from_pylist(made, SCHEMA)


def create(path: Path, **settings: Any) -> lakemark.Table:
    chosen: dict[str, Any] = {
        "partition_by": "day",
        "slash_separated_dates": True,
        "buckets": 1,
        "multi_writer": FAST,
        **settings,
    }
    return lakemark.create(path, schema=SCHEMA, record_key=["id"], **chosen)


def paths(table: lakemark.Table) -> dict[str, str]:
    found = table.snapshot(["id", "_hoodie_partition_path"]).read_all().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key is there twice"
    return {row["id"]: row["_hoodie_partition_path"] for row in found}


@pytest.mark.parametrize("table_type", ["merge_on_read", "copy_on_write"])
@pytest.mark.parametrize("by", ["day", "born", "day(at)", "day(born) as d"])
def test_every_operation_finds_the_folders_of_a_date(
    tmp_path: Path, by: str, table_type: str
) -> None:
    table = create(tmp_path / "t", partition_by=by, table_type=table_type)
    table.upsert(rows(("a", 2, 1), ("b", 2, 1), ("c", 3, 1), ("d", None, 1)))
    table.upsert(rows(("a", 2, 2), ("e", 4, 2)))
    default = "__HIVE_DEFAULT_PARTITION__"
    of_two = "2026/01/02"
    folders = {"a": of_two, "b": of_two, "c": "2026/01/03", "d": default, "e": "2026/01/04"}
    assert paths(table) == folders
    table.delete(where="id = 'b'")
    table.insert_overwrite(rows(("f", 3, 3)))
    assert paths(table) == {"a": of_two, "d": default, "e": "2026/01/04", "f": "2026/01/03"}
    table.delete_partitions("2026/01/04")
    assert paths(lakemark.open(tmp_path / "t")) == {"a": of_two, "d": default, "f": "2026/01/03"}


def test_query_reads_only_the_folders_of_its_dates(tmp_path: Path) -> None:
    for number, (by, condition) in enumerate(
        (
            ("day", pc.field("day") == "2026-01-03"),
            ("born", pc.field("born") > date(2026, 1, 2)),
            ("day(at)", pc.field("at") >= datetime(2026, 1, 3, tzinfo=UTC)),
        )
    ):
        path = tmp_path / f"t{number}"
        table = create(path, partition_by=by, metadata_table=False)
        table.upsert(rows(("a", 2, 1), ("b", 3, 1)))
        found = lakemark.open(path).scan(where=condition)
        assert [one.group.partition_path for one in found.slices] == ["2026/01/03"], by
        assert found.to_table()["id"].to_pylist() == ["b"]


@given(day=st.sampled_from(["2026-01-02", "2026/01/02", "2026-01/02", "2026/01-02", "2026-01-03"]))
def test_no_query_misses_a_text_that_apache_hudi_puts_into_the_folder(day: str) -> None:
    pruner = SlicePruner(SCHEMA, ("day",), has_slash_dates=True)
    is_inside = day in texts_of_path("2026/01/02")
    assert is_inside is (day.replace("-", "/") == "2026/01/02")
    found = pruner.select_partitions(["2026/01/02"], pc.field("day") == day)
    assert found == (["2026/01/02"] if is_inside else [])


def test_path_of_any_depth_is_searched() -> None:
    pruner = SlicePruner(SCHEMA, ("day",), has_slash_dates=True)
    deep = "/".join("abcdefghijklmnopqrstuvwxyz")
    assert pruner.select_partitions([deep, "2026"], pc.field("day") == "2026") == ["2026", deep]


def test_row_without_a_date_is_refused(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    for day in ("2026/01/02", "2026-01", "today"):
        wrong = rows(("a", 2, 1)).set_column(1, "day", pa.array([day]))
        with pytest.raises(lakemark.InvalidRecords, match="day is not a date such as 2026-01-02"):
            table.upsert(wrong)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"partition_by": []}, "has 0 fields"),
        ({"partition_by": ["day", "born"]}, "has 2 fields"),
        ({"hive_style": True}, "hive_style names folders"),
        ({"partition_by": "n"}, "n is no date"),
        ({"partition_by": "hour(at)"}, r"hour\(at\) is no date"),
        ({"partition_by": "bucket(id, 4)"}, r"bucket\(id, 4\) is no date"),
    ],
)
def test_table_that_could_not_separate_dates_is_not_created(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(lakemark.InvalidConfig, match=message):
        create(tmp_path / "t", **settings)
    assert not (tmp_path / "t").exists()
