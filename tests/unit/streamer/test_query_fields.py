"""``lakemark query --columns`` also names fields of structs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from streamer.cli import MISUSED, OK, main

USER = pa.struct([("name", pa.string()), ("home", pa.struct([("city", pa.string())]))])
SCHEMA = pa.schema([("id", pa.string()), ("user", USER)])
ROWS = [
    {"id": "1", "user": {"name": "Ann", "home": {"city": "Rome"}}},
    {"id": "2", "user": {"name": "Bo", "home": None}},
    {"id": "3", "user": None},
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = lakemark.create(str(tmp_path / "users"), schema=SCHEMA, record_key=["id"], buckets=1)
    table.upsert(pa.Table.from_pylist(ROWS, schema=SCHEMA))
    return table.location


@pytest.mark.parametrize("where", ["id < '4'", "length(id) = 1"], ids=["own", "DuckDB"])
def test_fields_of_structs_are_selected_by_dotted_names(
    path: str, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "length" in where:
        pytest.importorskip("duckdb")
    names = "user.home.city,id,user.name"
    assert main(["query", path, "--columns", names, "--where", where, "--json"]) == OK
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(found, key=lambda row: str(row["id"])) == [
        {"user.home.city": "Rome", "id": "1", "user.name": "Ann"},
        {"user.home.city": None, "id": "2", "user.name": "Bo"},
        {"user.home.city": None, "id": "3", "user.name": None},
    ]


def test_a_struct_and_its_field_are_written_to_a_file(path: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    assert main(["query", path, "--columns", "user.name,user", "--out", str(file)]) == OK
    schema = pq.read_schema(file)
    assert schema.names == ["user.name", "user"]
    assert (schema.field("user.name").type, schema.field("user").type) == (pa.string(), USER)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ("user.nme", "field 'user.nme' is not among the columns"),
        ("usr.name", "has no column usr"),
        ("id.name", "field 'id.name' is not among the columns"),
        ("id,user.name,user.name", "requested more than once"),
    ],
)
def test_fields_that_do_not_exist_are_refused(
    path: str, names: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", path, "--columns", names]) == MISUSED
    assert reason in capsys.readouterr().err
