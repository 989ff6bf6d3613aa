"""Arguments of Python programs that would fail late, or be ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from tests.unit.operations.tables import FAST, SCHEMA, contents, create, reopen, rows


@pytest.fixture
def table(tmp_path: Path) -> lakemark.Table:
    made = create(str(tmp_path / "orders"))
    made.upsert(rows(("a", "north", 1, 1)))
    return made


def test_misspelled_parameter_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "orders")
    with pytest.raises(lakemark.InvalidConfig, match=r"'bucket' is no parameter.*mean 'buckets'"):
        lakemark.create(path, schema=SCHEMA, record_key=["id"], bucket="8")
    with pytest.raises(lakemark.InvalidConfig, match="did you mean 'only_writer'"):
        lakemark.open(path, onlywriter="yes")
    assert not (tmp_path / "orders").exists()


def test_savepoint_keeps_the_newest_commit_of_any_writer(table: lakemark.Table) -> None:
    theirs = reopen(table.location).upsert(rows(("b", "north", 1, 1)))
    assert table.savepoint() == theirs.instant


def test_upsert_without_rows_adds_no_column_later(table: lakemark.Table) -> None:
    wider = rows(("b", "north", 1, 1)).append_column("extra", pa.array([1]))
    assert table.upsert(wider.slice(0, 0), add_columns=True).instant is None
    table.upsert(rows(("c", "north", 1, 1)))
    schema = lakemark.open(table.location, multi_writer=FAST).schema
    assert schema is not None
    assert "extra" not in schema.names


@pytest.mark.parametrize("given", [None, "abc", [{"id": "1"}], {"id": ["1"]}, 5], ids=repr)
def test_rows_that_are_not_arrow_are_refused(table: lakemark.Table, given: Any) -> None:
    with pytest.raises(lakemark.InvalidConfig, match="is no record batch; pass an Arrow"):
        table.upsert(given)


def test_no_batches_write_nothing(table: lakemark.Table) -> None:
    assert table.upsert([]).instant is None
    assert table.upsert(iter([])).instant is None


def test_condition_that_is_none_is_refused(table: lakemark.Table) -> None:
    wrong: Any = True
    with pytest.raises(lakemark.InvalidConfig, match="where is True; pass an Arrow expression"):
        table.delete(where=wrong)
    assert list(contents(table)) == ["a"]


@pytest.mark.parametrize(
    "where", [pc.field("zz") == 1, pc.field("id") == pa.scalar([1]), pc.field("v") + 1], ids=str
)
def test_expression_that_does_not_fit_the_columns_is_refused(
    table: lakemark.Table, where: pc.Expression
) -> None:
    with pytest.raises(lakemark.InvalidConfig, match="where cannot be evaluated on the columns"):
        table.delete(where=where)
    with pytest.raises(lakemark.InvalidConfig, match="where cannot be evaluated on the columns"):
        table.scan(where=where)
    assert not table.timeline.pending()
