"""Keys in any form that Python programs use delete the right records, or raise an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakemark
from tests.unit.operations.tables import FAST, contents, create, rows


@pytest.fixture
def table(tmp_path: Path) -> lakemark.Table:
    made = create(str(tmp_path / "orders"))
    made.upsert(rows(*((key, "north", 1, 1) for key in ("1", "2", "3", "1234"))))
    return made


@pytest.mark.parametrize(
    "keys",
    ["1234", b"1234", {"id": "1"}, 1, [1], [b"1"], [None], ["1", None], [("1",)], [{"x": "1"}]],
    ids=repr,
)
def test_keys_that_are_not_keys_are_refused(table: lakemark.Table, keys: Any) -> None:
    with pytest.raises(lakemark.InvalidConfig, match=r"keys (is|contains|lack) .*"):
        table.delete(keys=keys)
    assert sorted(contents(table)) == ["1", "1234", "2", "3"]


def test_data_frame_is_refused_with_the_conversion(table: lakemark.Table) -> None:
    # An iteration over a data frame yields the names of its columns, which could be keys.
    frame: Any = pa.table({"1": ["2"]}).to_pandas()
    with pytest.raises(lakemark.InvalidConfig, match=r"pass pyarrow\.Table\.from_pandas\(keys\)"):
        table.delete(keys=frame)
    assert sorted(contents(table)) == ["1", "1234", "2", "3"]


@pytest.mark.parametrize(
    "keys",
    [pa.array(["1", None]), pa.table({"id": ["1", None]}), [{"id": "1"}, {"id": None}]],
    ids=["array", "table", "mappings"],
)
def test_null_keys_are_refused(table: lakemark.Table, keys: Any) -> None:
    with pytest.raises(lakemark.InvalidRecords, match="1 of 2 keys are null"):
        table.delete(keys=keys)


@pytest.mark.parametrize(
    "keys",
    [
        (key for key in ("1", "2")),
        ({"id": key} for key in ("1", "2")),
        {"1": 0, "2": 0}.keys(),
        {"1", "2"},
        pa.array(["1", "2"]),
        pa.chunked_array([["1"], ["2"]], pa.large_string()),
        pa.array(["1", "2"]).dictionary_encode(),
    ],
    ids=["texts", "mappings", "view", "set", "array", "chunked", "dictionary"],
)
def test_iterators_and_arrays_of_keys_delete_their_records(
    table: lakemark.Table, keys: Any
) -> None:
    assert table.delete(keys=keys).deletes == 2
    assert sorted(contents(table)) == ["1234", "3"]


def test_array_of_the_key_column_s_type_deletes_its_records(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    path = str(tmp_path / "numbers")
    table = lakemark.create(path, schema=schema, record_key=["n"], multi_writer=FAST)
    table.upsert(pa.table({"n": [1, 2, 3]}))
    assert table.delete(keys=pa.array([1, 3], pa.int32())).deletes == 2
    with pytest.raises(lakemark.InvalidConfig, match="column 'n' is double in the rows"):
        table.delete(keys=pa.array([2.0]))
    assert table.snapshot(["n"]).read_all().to_pylist() == [{"n": 2}]
