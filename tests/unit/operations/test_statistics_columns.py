"""The columns with statistics can be chosen, also in a table that has others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.errors import InvalidConfig, Refused
from lakemark.metadata.index_definition import read_definitions
from lakemark.storage import StorageLocation, open_storage

META = {"_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key"}
#: The last of them is beyond the default columns.
NAMES = [f"c{number:02}" for number in range(40)]
SCHEMA = pa.schema(
    [("id", pa.string()), ("tags", pa.list_(pa.string())), *((name, pa.int64()) for name in NAMES)]
)


def rows(first: int, count: int = 20) -> pa.Table:
    numbers = range(first, first + count)
    values = {name: [number + at for number in numbers] for at, name in enumerate(NAMES)}
    keys = [f"id {number}" for number in numbers]
    return pa.table({"id": keys, "tags": [["a"]] * count, **values}, schema=SCHEMA)


def create(path: Path, chosen: list[str] | None = None, version: int = 9) -> lakemark.Table:
    return lakemark.create(
        str(path),
        schema=SCHEMA,
        record_key="id",
        index="lookup",
        statistics_columns=chosen,
        version=version,
        only_writer=True,
    )


def defined(path: Path) -> set[str]:
    definitions = read_definitions(open_storage(StorageLocation(str(path))))
    return {*definitions["column_stats"].source_fields}


@pytest.mark.parametrize("version", [6, 8, 9])
def test_chosen_columns_have_statistics_and_no_others(tmp_path: Path, version: int) -> None:
    table = create(tmp_path / "orders", ["c38", "c01"], version)
    table.upsert(rows(0))
    table.upsert(rows(1000))
    assert defined(tmp_path / "orders") == {*META, "c01", "c38"}
    assert table.metadata_differences() == []
    reopened = lakemark.open(str(tmp_path / "orders"), only_writer=True)
    reopened.upsert(rows(2000))
    assert defined(tmp_path / "orders") == {*META, "c01", "c38"}
    assert reopened.metadata_differences() == []
    found = reopened.snapshot(where="c38 >= 2038").read_all()
    assert found.num_rows == 20


def test_no_column_may_be_chosen(tmp_path: Path) -> None:
    table = create(tmp_path / "orders", [])
    table.upsert(rows(0))
    assert defined(tmp_path / "orders") == META
    assert table.metadata_differences() == []


def test_other_columns_are_chosen_later(tmp_path: Path) -> None:
    table = create(tmp_path / "orders")
    table.upsert(rows(0))
    assert defined(tmp_path / "orders") == {*META, "id", *NAMES[:31]}
    table.choose_statistics_columns(["c39"])
    assert defined(tmp_path / "orders") == {*META, "c39"}
    table.upsert(rows(10))
    assert defined(tmp_path / "orders") == {*META, "c39"}
    assert table.metadata_differences() == []
    table.choose_statistics_columns(None)
    table.upsert(rows(20))
    assert defined(tmp_path / "orders") == {*META, "id", *NAMES[:31]}
    assert table.metadata_differences() == []
    assert table.snapshot().read_all().num_rows == 40


def test_writer_with_other_columns_is_refused_and_goes_on_when_it_is_opened_again(
    tmp_path: Path,
) -> None:
    create(tmp_path / "orders").upsert(rows(0))
    writer = lakemark.open(str(tmp_path / "orders"))
    writer.upsert(rows(100))
    lakemark.open(str(tmp_path / "orders")).choose_statistics_columns(["c05"])
    with pytest.raises(Refused, match="statistics of other columns than when it was opened"):
        writer.upsert(rows(200))
    again = lakemark.open(str(tmp_path / "orders"))
    again.upsert(rows(200))
    assert defined(tmp_path / "orders") == {*META, "c05"}
    assert again.metadata_differences() == []
    assert again.snapshot().read_all().num_rows == 60


def test_the_next_writer_finishes_a_choice_whose_process_died(tmp_path: Path) -> None:
    table = create(tmp_path / "orders")
    table.upsert(rows(0))
    stored = tmp_path / "orders/.hoodie/hoodie.properties"
    properties = stored.read_text()
    table.choose_statistics_columns(["c07"])
    chosen = stored.read_text()
    table.choose_statistics_columns(None)
    assert stored.read_text() != chosen
    # As after a crash behind the first step: the properties have the choice, the index has not.
    stored.write_text(chosen)
    assert properties != chosen
    lakemark.open(str(tmp_path / "orders"), only_writer=True).upsert(rows(50))
    assert defined(tmp_path / "orders") == {*META, "c07"}


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (["none"], "no column 'none' for statistics; choose among id, c00"),
        (["tags"], "column 'tags' cannot have statistics, because its type is list"),
        (["c01", "c01"], "names column 'c01' twice"),
    ],
)
def test_columns_that_cannot_have_statistics_are_refused(
    tmp_path: Path, chosen: list[str], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        create(tmp_path / "orders", chosen)
    assert not (tmp_path / "orders/.hoodie").exists()
    table = create(tmp_path / "orders")
    table.upsert(rows(0))
    with pytest.raises(InvalidConfig, match=message):
        table.choose_statistics_columns(chosen)
    assert defined(tmp_path / "orders") == {*META, "id", *NAMES[:31]}
