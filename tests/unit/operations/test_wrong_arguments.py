"""Arguments that would fail late or be ignored are refused at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
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
    with pytest.raises(lakemark.InvalidConfig, match=r"'bucket' is not a param.*mean 'buckets'"):
        lakemark.create(path, schema=SCHEMA, record_key=["id"], bucket="8")
    with pytest.raises(lakemark.InvalidConfig, match="did you mean 'only_writer'"):
        lakemark.open(path, onlywriter="yes")
    assert not (tmp_path / "orders").exists()


def test_savepoint_keeps_the_newest_commit_of_any_writer(table: lakemark.Table) -> None:
    theirs = reopen(table.location).upsert(rows(("b", "north", 1, 1)))
    assert table.savepoint() == theirs.instant


@pytest.mark.parametrize(
    ("name", "kind"), [("ts", pa.float64()), ("id", pa.large_string()), ("region", pa.binary())]
)
def test_column_that_identifies_or_orders_records_keeps_its_type(
    table: lakemark.Table, name: str, kind: pa.DataType
) -> None:
    """Such a type change is refused: stored deletes with the old type would always win."""
    table.upsert(rows(("b", "north", 5, 1)))
    table.delete(["b"])
    given = rows(("c", "north", 2, 2))
    wider = given.set_column(given.column_names.index(name), name, given.column(name).cast(kind))
    if kind == pa.large_string():
        table.upsert(wider, add_columns=True)  # the same type in a table
        assert contents(table) == {"a": ("north", 1, 1), "c": ("north", 2, 2)}
        return
    with pytest.raises(lakemark.InvalidConfig, match=f"'?{name}'?"):
        table.upsert(wider, add_columns=True)
    table.upsert(rows(("b", "north", 4, 4)))
    assert contents(table) == {"a": ("north", 1, 1)}


def test_upsert_without_rows_adds_no_column_later(table: lakemark.Table) -> None:
    wider = rows(("b", "north", 1, 1)).append_column("extra", pa.array([1]))
    assert table.upsert(wider.slice(0, 0), add_columns=True).instant is None
    table.upsert(rows(("c", "north", 1, 1)))
    schema = lakemark.open(table.location, multi_writer=FAST).schema
    assert schema is not None
    assert "extra" not in schema.names


@pytest.mark.parametrize("given", [None, "abc", [{"id": "1"}], {"id": ["1"]}, 5], ids=repr)
def test_rows_that_are_not_arrow_are_refused(table: lakemark.Table, given: Any) -> None:
    with pytest.raises(lakemark.InvalidConfig, match="is not a record batch; pass an Arrow"):
        table.upsert(given)


def test_data_frame_is_refused_with_the_conversion(table: lakemark.Table) -> None:
    given: Any = rows(("b", "north", 1, 1)).to_pandas()
    with pytest.raises(lakemark.InvalidConfig, match=r"pass pyarrow\.Table\.from_pandas\(rows\)"):
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


@pytest.mark.parametrize("minutes", [-1, 0.5, True, "5", float("nan")], ids=repr)
def test_lock_that_expires_at_no_time_is_refused(table: lakemark.Table, minutes: Any) -> None:
    with pytest.raises(lakemark.InvalidConfig, match=r"pass 0 .never expires. or a number"):
        lakemark.open(table.location, lock_expire_minutes=minutes)


@pytest.mark.parametrize("name", ["_hoodie_source", "_HOODIE_Source"])
def test_column_with_the_prefix_of_hudis_own_columns_is_refused(tmp_path: Path, name: str) -> None:
    """Such a column is refused in any case of letters, because readers of Hudi omit it."""
    wider = SCHEMA.append(pa.field(name, pa.string()))
    with pytest.raises(lakemark.InvalidConfig, match=rf"{name}.*rename the column"):
        lakemark.create(str(tmp_path / "orders"), schema=wider, record_key=["id"])
    assert not (tmp_path / "orders").exists()
    marked = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    lakemark.create(str(tmp_path / "orders"), schema=marked, record_key=["id"])


@pytest.mark.parametrize("name", ["a b", "a/b", "a'b", 'a"b', "a\nb", "ä", "a=b"], ids=repr)
def test_table_name_that_catalogs_do_not_take_is_refused(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / "orders")
    with pytest.raises(lakemark.InvalidConfig, match=r"the table's name is .* pass a name of"):
        lakemark.create(path, schema=SCHEMA, record_key=["id"], name=name)
    with pytest.raises(lakemark.InvalidConfig, match="the table's name is 'my orders'"):
        lakemark.create(str(tmp_path / "my orders"), schema=SCHEMA, record_key=["id"])


def test_part_of_a_parameters_name_is_completed(tmp_path: Path) -> None:
    wrong: Any = {"type": "COPY_ON_WRITE"}
    with pytest.raises(lakemark.InvalidConfig, match="did you mean 'table_type'"):
        lakemark.create(str(tmp_path / "orders"), schema=SCHEMA, record_key=["id"], **wrong)


def test_path_in_the_users_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    made = lakemark.create("~/orders", schema=SCHEMA, record_key=["id"])
    assert (tmp_path / "orders/.hoodie").is_dir()
    assert lakemark.open("~/orders").location == made.location == str(tmp_path / "orders")


def test_table_is_read_as_of_a_datetime(table: lakemark.Table) -> None:
    before = datetime.now(UTC) - timedelta(days=1)
    now = datetime.now(UTC) + timedelta(seconds=5)
    for given, count in ((now, 1), (now.isoformat(), 1), (before, 0), (before.date(), 0)):
        scan = table.scan(lakemark.Snapshot(as_of=given))
        assert scan.to_reader().read_all().num_rows == count
    changed = table.scan(lakemark.Incremental(before, now)).to_reader().read_all()
    assert changed.num_rows == 1
    wrong: Any = 5
    with pytest.raises(lakemark.InvalidConfig, match=r"5 is not a time; accepted: .* a datetime"):
        table.scan(lakemark.Snapshot(as_of=wrong))


@pytest.mark.parametrize("wrong", ["rows", "where"])
def test_wrong_call_leaves_nothing_on_the_timeline(table: lakemark.Table, wrong: str) -> None:
    before = lakemark.open(table.location, multi_writer=FAST).timeline.instants
    with pytest.raises((lakemark.InvalidConfig, lakemark.InvalidRecords)):
        if wrong == "rows":
            table.upsert(rows(("b", "north", 1, 1)).drop_columns(["id"]))
        else:
            table.delete(where="v >")
    assert lakemark.open(table.location, multi_writer=FAST).timeline.instants == before


def test_restore_without_a_commit_or_a_pending_restore_is_refused(table: lakemark.Table) -> None:
    with pytest.raises(lakemark.InvalidConfig, match=r"no restore of .* is pending; name"):
        table.restore()
