"""Tables that are partitioned by expressions, written and read by a Python program."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakemark
from lakemark.config import keys
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from tests.unit.operations.tables import FAST, reopen

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("born", pa.date32()),
        ("n", pa.int64()),
        ("v", pa.int32()),
    ]
)
KINDS = [(t, v) for t in ("merge_on_read", "copy_on_write") for v in (6, 8, 9)]


def rows(*listed: tuple[str, datetime | None, int]) -> pa.Table:
    """Create rows with a key, a time and a value."""
    return pa.Table.from_pylist(
        [{"id": key, "at": at, "born": at, "n": v, "v": v} for key, at, v in listed], schema=SCHEMA
    )


def create(path: Path, by: list[str], **settings: Any) -> lakemark.Table:
    chosen: dict[str, Any] = {"buckets": 1, "multi_writer": FAST, **settings}
    return lakemark.create(path, schema=SCHEMA, record_key=["id"], partition_by=by, **chosen)


def paths(table: lakemark.Table) -> dict[str, str]:
    """Return the partition path of each key."""
    found = table.snapshot(["id", "_hoodie_partition_path"]).read_all().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key is there twice"
    return {row["id"]: row["_hoodie_partition_path"] for row in found}


def properties_of(path: Path) -> TableProperties:
    return TableProperties.parse((path / PROPERTIES_PATH).read_bytes())


@pytest.mark.parametrize(("table_type", "version"), KINDS)
def test_table_is_written_and_read_by_expressions(
    tmp_path: Path, table_type: str, version: int
) -> None:
    by = ["day(at)", "bucket(id, 4) as b", "truncate(n, 10)"]
    table = create(tmp_path / "t", by, table_type=table_type, version=version)
    table.upsert(rows(("a", AT, 1), ("b", AT + timedelta(days=1), 12), ("c", None, 25)))
    expected = {"a": "2026-01-02/3/0", "b": "2026-01-03/1/10"}
    expected["c"] = "__HIVE_DEFAULT_PARTITION__/3/20"
    assert paths(table) == expected
    reopen(table.location).upsert(rows(("a", AT + timedelta(hours=20), 2)))
    found = reopen(table.location).snapshot(["id", "at_day", "b", "n_truncate", "v"]).read_all()
    by_key = {row["id"]: row for row in found.to_pylist()}
    assert by_key["a"] == {"id": "a", "at_day": "2026-01-02", "b": 3, "n_truncate": 0, "v": 2}
    assert by_key["c"]["at_day"] is None
    reopen(table.location).delete(pa.table({"id": ["a"]}))
    assert paths(reopen(table.location)).keys() == {"b", "c"}
    stored = properties_of(tmp_path / "t")
    assert stored.partition_fields == ("at_day", "b", "n_truncate")
    assert [str(field) for field in stored.partition_by] == by
    assert table.metadata_differences() == []


@pytest.mark.parametrize(
    ("by", "path"),
    [
        ("year(at)", "2026"),
        ("month(at)", "2026-01"),
        ("hour(at)", "2026-01-02-03"),
        ('format(at, "yyyyMMdd")', "20260102"),
        ("day(born)", "2026-01-02"),
        ("truncate(id, 2)", "ab"),
    ],
)
def test_folder_of_each_function(tmp_path: Path, by: str, path: str) -> None:
    table = create(tmp_path / "t", [by])
    table.upsert(rows(("abc", AT, 1)))
    assert paths(table) == {"abc": path}
    named = create(tmp_path / "named", [f"{by} as part"], hive_style=True)
    named.upsert(rows(("abc", AT, 1)))
    assert paths(named) == {"abc": f"part={path}"}


def test_slashes_are_encoded_or_refused(tmp_path: Path) -> None:
    with pytest.raises(lakemark.InvalidConfig, match=r"'2026/01/02' cannot name a folder"):
        create(tmp_path / "t", ["format(at, yyyy/MM/dd)"])
    with pytest.raises(lakemark.InvalidConfig, match=r"only day\(at\), with slash_separated_dates"):
        create(tmp_path / "t", ["format(at, yyyy/MM/dd)"])
    table = create(tmp_path / "t", ["format(at, yyyy/MM/dd)"], url_encode=True)
    table.upsert(rows(("a", AT, 1), ("b", AT + timedelta(days=1), 2)))
    assert paths(table) == {"a": "2026%2F01%2F02", "b": "2026%2F01%2F03"}
    assert len(table.scan(where="at >= '2026-01-03 00:00:00'").slices) == 1


def test_value_of_the_caller_must_be_that_of_the_expression(tmp_path: Path) -> None:
    table = create(tmp_path / "t", ["day(at)"])
    own = rows(("a", AT, 1), ("b", AT, 2))
    table.upsert(own.append_column("at_day", pa.array(["2026-01-02", None])))
    assert paths(table) == {"a": "2026-01-02", "b": "2026-01-02"}
    wrong = own.append_column("at_day", pa.array(["2026-01-02", "2026-01-03"]))
    with pytest.raises(lakemark.InvalidRecords, match=r"1 of 2 rows .*'at_day' is not day\(at\)"):
        table.upsert(wrong)
    nothing = rows(("c", None, 3)).append_column("at_day", pa.array(["2026-01-02"]))
    with pytest.raises(lakemark.InvalidRecords, match=r"'at_day' is not day\(at\)"):
        table.upsert(nothing)
    table.upsert(table.snapshot().read_all())  # the rows of a scan can be written
    assert len(paths(table)) == 2


def test_time_without_a_folder_is_refused(tmp_path: Path) -> None:
    table = create(tmp_path / "t", ["day(at)"])
    far = pa.array([2**60], pa.int64()).cast(SCHEMA.field("at").type)
    row = rows(("a", AT, 1)).set_column(1, SCHEMA.field("at"), far)
    with pytest.raises(lakemark.InvalidRecords, match="value of at_day cannot name a folder"):
        table.upsert(row)


@pytest.mark.parametrize("url_encode", [False, True])
def test_row_without_a_path_names_each_field_and_the_remedy_that_is_left(
    tmp_path: Path, url_encode: bool
) -> None:
    table = create(tmp_path / "t", ["id", "day(at)"], url_encode=url_encode)
    with pytest.raises(lakemark.InvalidRecords, match="id or at_day cannot name a folder") as found:
        table.upsert(rows(("x" * 256 if url_encode else "a/b", AT, 1)))
    assert ("url_encode=True" in str(found.value)) == (not url_encode)


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (["at"], r"'at' is of type timestamp.*partition by day\(at\)"),
        (["day(at, Europe/Berlin)"], "is for existing tables only.*omit the time zone"),
        (["day(n)"], "'n' is int64; the function takes timestamps and dates; declare the column"),
        (["bucket(at, 4)"], "the function takes integers, texts and dates"),
        (["truncate(born, 4)"], "the function takes integers and texts"),
        (["day(at) as V"], r"day\(at\) as V adds the column 'V', but the rows have a column"),
        (["day(x)"], "field 'x' is not among the columns"),
        (["day(at)", "day(at)"], "partition_by names column"),
        (["bucket(id, 0)"], "needs a positive integer"),
    ],
)
def test_unsuitable_expression_is_refused_before_anything_is_written(
    tmp_path: Path, by: list[str], message: str
) -> None:
    with pytest.raises(lakemark.InvalidConfig, match=message):
        create(tmp_path / "t", by)
    assert not (tmp_path / "t").exists()


def test_type_of_the_column_never_changes(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int32())])
    table = lakemark.create(
        tmp_path / "t", schema=schema, record_key="id", partition_by="truncate(n, 10)"
    )
    wider = pa.table({"id": ["a"], "n": pa.array([1], pa.int64())})
    with pytest.raises(lakemark.InvalidConfig, match=r"'n' .* belongs to the partition path"):
        table.upsert(wider, add_columns=True)


@pytest.mark.parametrize(("table_type", "version"), KINDS)
def test_filter_on_the_column_skips_folders(tmp_path: Path, table_type: str, version: int) -> None:
    # Without a metadata table there are no statistics, so only the folders are skipped.
    settings = {"table_type": table_type, "version": version, "metadata_table": False}
    table = create(tmp_path / "t", ["day(at)"], **settings)
    for day in range(4):
        table.upsert(rows((f"k{day}", AT + timedelta(days=day), day)))
    for again in (table, reopen(table.location)):
        scan = again.scan(where="at >= '2026-01-04 00:00:00'")
        assert {one.group.partition_path for one in scan.slices} == {"2026-01-04", "2026-01-05"}
        assert sorted(scan.to_table()["id"].to_pylist()) == ["k2", "k3"]


def write_without_expressions(path: Path, row: pa.Table) -> None:
    """Write as a program that does not know the expressions."""
    stored, values = path / PROPERTIES_PATH, properties_of(path).values
    without = {key: text for key, text in values.items() if key != keys.PARTITION_EXPRESSIONS}
    stored.write_bytes(TableProperties(without).to_bytes())
    lakemark.open(path, multi_writer=FAST).upsert(row)
    stored.write_bytes(TableProperties(values).to_bytes())


@pytest.mark.parametrize(("table_type", "version"), KINDS)
def test_wrong_value_of_another_writer_is_found_and_never_missed_by_a_query(
    tmp_path: Path, table_type: str, version: int
) -> None:
    path = tmp_path / "t"
    table = create(path, ["day(at)"], table_type=table_type, version=version)
    table.upsert(rows(("a", AT, 1)))
    right = rows(("b", AT, 2)).append_column("at_day", pa.array(["2026-01-02"]))
    write_without_expressions(path, right)
    # The value is right, but only lakemark vouches for all rows.
    continued = reopen(str(path))
    continued.upsert(rows(("c", AT + timedelta(days=1), 3)))
    assert len(reopen(str(path)).scan(where="id <> 'x'").slices) == 2
    wrong = rows(("d", AT + timedelta(days=9), 4)).append_column("at_day", pa.array(["2026-01-02"]))
    write_without_expressions(path, wrong)
    found = reopen(str(path)).scan(where="at > '2026-01-10 00:00:00'").to_table()
    assert found["id"].to_pylist() == ["d"]
    message = r"record 'd' .* has the value of at_day = day\(at\) '2026-01-02', .*'2026-01-11'"
    with pytest.raises(lakemark.InvalidConfig, match=message):
        reopen(str(path)).upsert(rows(("e", AT, 5)))


@pytest.mark.parametrize("version", [6, 8, 9])
def test_statement_is_repeated_until_another_writer_commits(tmp_path: Path, version: int) -> None:
    path = tmp_path / "t"
    table = create(path, ["day(at)"], version=version)

    def statements() -> list[bool]:
        opened = reopen(str(path))
        commits = (opened._table.store.read_commit(i) for i in opened.timeline.completed())
        return [keys.PARTITION_EXPRESSIONS in one.extra_metadata for one in commits]

    table.upsert(rows(("a", AT, 1)))
    table.delete(["a"])
    assert statements() == [True, True, True]
    write_without_expressions(path, rows(("b", None, 2)))
    table.refresh()
    table.upsert(rows(("c", AT, 3)))
    assert statements() == [True, True, True, False, False]


def test_earlier_commit_of_another_writer_in_version_6_counts(tmp_path: Path) -> None:
    """In version 6, the times of copied files do not tell the order of the commits."""
    path = tmp_path / "t"
    table = create(path, ["day(at)"], version=6, metadata_table=False)
    for day in range(3):
        table.upsert(rows((f"k{day}", AT + timedelta(days=day), day)))
    condition = "at < '2026-01-03 00:00:00'"
    assert len(reopen(str(path)).scan(where=condition).slices) == 1
    _, commit, _ = sorted((path / ".hoodie").glob("*.deltacommit"))[-3:]
    metadata, times = json.loads(commit.read_text()), commit.stat()
    del metadata["extraMetadata"][keys.PARTITION_EXPRESSIONS]
    commit.write_text(json.dumps(metadata))
    os.utime(commit, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert len(reopen(str(path)).scan(where=condition).slices) == 3


@pytest.mark.parametrize(("operation", "is_kept"), [("DELETE_PREPPED", True), ("UPSERT", False)])
def test_deletes_by_another_writer_do_not_end_the_statement(
    operation: str, is_kept: bool, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = create(path, ["day(at)"], version=6, metadata_table=False)
    table.upsert(rows(("a", AT, 1), ("b", AT + timedelta(days=1), 1)))
    table.delete(["b"])
    commit = max((path / ".hoodie").glob("*.deltacommit"))
    metadata = json.loads(commit.read_text())
    del metadata["extraMetadata"][keys.PARTITION_EXPRESSIONS]
    commit.write_text(json.dumps({**metadata, "operationType": operation}))
    condition = "at < '2026-01-03 00:00:00'"
    assert len(reopen(str(path)).scan(where=condition).slices) == (1 if is_kept else 2)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", json.dumps({"at_day": "week(at)"}), json.dumps({"other": "day(at)"})],
)
def test_unknown_expression_is_refused_for_writing_only(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t"
    create(path, ["day(at)"]).upsert(rows(("a", AT, 1)))
    values = {**properties_of(path).values, keys.PARTITION_EXPRESSIONS: text}
    (path / PROPERTIES_PATH).write_bytes(TableProperties(values).to_bytes())
    assert reopen(str(path)).scan(where="at > '2025-01-01 00:00:00'").to_table().num_rows == 1
    with pytest.raises(lakemark.Unsupported, match=r"lakemark\.partition\.expressions is "):
        reopen(str(path)).upsert(rows(("b", AT, 1)))


def test_expressions_survive_a_change_of_version(tmp_path: Path) -> None:
    table = create(tmp_path / "t", ["day(at)"], version=6)
    table.upsert(rows(("a", AT, 1)))
    for version in (9, 8, 6):
        table = reopen(table.location)
        table.change_version(version)
        table = reopen(table.location)
        table.upsert(rows((f"k{version}", AT + timedelta(days=version), 1)))
        scan = table.scan(where="at < '2026-01-03 00:00:00'")
        assert {one.group.partition_path for one in scan.slices} == {"2026-01-02"}


def test_day_of_a_local_timestamp_is_its_own(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("at", pa.timestamp("us"))])
    table = lakemark.create(tmp_path / "t", schema=schema, record_key="id", partition_by="day(at)")
    late = datetime(2026, 1, 2, 23, 59, 59, 999_999)  # noqa: DTZ001
    table.upsert(pa.table({"id": ["a"], "at": [late]}, schema=schema))
    assert paths(table) == {"a": "2026-01-02"}
    assert date(2026, 1, 2) == late.date()
