"""Queries make at most one row of each record; all others are refused before the run starts."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from lakemark.errors import InvalidConfig
from lakemark.sql import engine
from transforms.steps.chain import TransformChain
from transforms.steps.row_query import RowQuery
from transforms.steps.sql import Sql

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("seen", pa.timestamp("us", "UTC"))])
ROWS = pa.table({"id": [str(n) for n in range(30)], "n": [*range(30)], "seen": [0] * 30}).cast(
    SCHEMA
)


@pytest.fixture(autouse=True)
def _needs_duckdb() -> None:
    pytest.importorskip("duckdb")


REFUSED = {
    "select sum(n) as n from records": "sum is not a function of the values of one row",
    "select n from records order by n": "it has order by, limit or distinct",
    "select n from records limit 1": "it has order by, limit or distinct",
    "select distinct n from records": "it has order by, limit or distinct",
    "select n from records group by n": "it has group by",
    "select n from records qualify true": "it has qualify",
    "select n from records using sample 10%": "it has using sample",
    "select n from records tablesample 10%": "sample",
    "select a.n from records a join records b on true": "it does not read only the table records",
    "select a.n from records a, records b": "it does not read only the table records",
    "select n from (select * from records)": "it does not read only the table records",
    "select n from other": "it does not read only the table records",
    "select name from duckdb_settings()": "it does not read only the table records",
    "select 1 as n": "it does not read only the table records",
    "select (select max(n) from records) as n from records": "it has a subquery",
    "select n from records where n in (select 1)": "it has a subquery",
    "select row_number() over () as n from records": "it has a window function",
    "select unnest([1, 2]) as n from records": "unnest is not a function of the values of one row",
    "with x as (select 1) select n from records": "it is not a single select",
    "select n from records union all select n from records": "it is not a single select",
    "select n from records; select n from records": "it has 2 statements",
    "select random() as n from records": "the result of random is not always the same",
    "select now() as n from records": "the result of now is not always the same",
    "select current_date as n from records": "the result of current_date is not always the same",
    "select n from records where seen < Current_Timestamp": "current_timestamp is not always",
    "select localtimestamp as n from records": "localtimestamp is not always the same",
    "select concat(user, id) as n from records": "the result of user is not always the same",
    "select n + $1 as n from records": "parameter",
    "copy records to 'x.csv'": "the query cannot be parsed",
    "select n from": "the query cannot be parsed: syntax error",
    "select x from records": "the query cannot run on the columns id, n, seen: Binder Error",
    "select n + 1 from records": "is not a valid name in Avro",
    "select n as a, n as A from records": "rename",
}


def test_column_may_be_called_like_a_function() -> None:
    rows = ROWS.rename_columns(["user", "current_date", "seen"])
    step = Sql("select user as id, Current_Date as n, seen from records")
    assert step.output_schema(rows.schema) == SCHEMA
    assert step.apply(rows).rows == ROWS


@pytest.mark.parametrize("query", REFUSED)
def test_query_that_does_not_make_one_row_of_each_record_is_refused(query: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        TransformChain.build([("transform.0.sql", Sql(query))], SCHEMA)
    assert REFUSED[query] in str(refused.value), refused.value


def test_records_for_which_the_query_fails_are_rejected_and_others_are_filtered() -> None:
    query = (
        "select case when n = 7 then cast('x' || id as int) else n * 2 end as twice, "
        "date_trunc('year', seen) as year from records where n % 3 <> 0"
    )
    result = TransformChain.build([("transform.0.sql", Sql(query))], SCHEMA).apply(ROWS)
    assert [*result.rejected] == [7]
    reason = "transform.0.sql: Conversion Error: Could not convert string 'x7' to INT32"
    assert result.rejected[7] == reason
    assert result.filtered.tolist() == [*range(0, 30, 3)]
    assert result.rows["twice"].to_pylist() == [n * 2 for n in range(30) if n % 3 and n != 7]
    assert result.origins.tolist() == [n for n in range(30) if n % 3 and n != 7]


def test_query_reads_no_files() -> None:
    with pytest.raises(InvalidConfig, match="does not read only the table records"):
        Sql("select * from read_csv('/etc/passwd')").output_schema(SCHEMA)
    with pytest.raises(InvalidConfig, match="does not read only the table records"):
        Sql("select * from '/etc/passwd'").output_schema(SCHEMA)


def test_columns_of_keys_are_known_if_the_query_names_them() -> None:
    query = Sql(
        "select upper(records.id || n) as key, * exclude (seen) from records where n > 1000"
    )
    assert query.key_sources("key", SCHEMA) == ("id", "n")
    assert query.key_sources("n", SCHEMA) == ("n",)
    assert query.apply_to_keys(ROWS).rows["key"].to_pylist()[:2] == ["00", "11"]
    replaced = Sql("select * replace (n + 1 as n) from records")
    assert replaced.key_sources("n", SCHEMA) is None


def test_query_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from transforms.steps import sql

    checked: list[str] = []

    class Counted(RowQuery):
        @classmethod
        def parse(cls, connection: object, text: str) -> RowQuery:
            checked.append(text)
            return super().parse(connection, text)

    monkeypatch.setattr(sql, "RowQuery", Counted)
    chains = [
        TransformChain.build([("s", Sql("select id, n + 40 as more from records"))], SCHEMA)
        for _ in range(2)
    ]
    for chain in chains:
        assert chain.apply(ROWS).rows.num_rows == chain.apply_to_keys(ROWS).rows.num_rows == 30
        assert chain.key_sources("more") == ("n",)
    assert checked == ["select id, n + 40 as more from records"]


def test_threads_of_later_batches_use_the_same_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    from transforms.steps import sql

    opened: list[object] = []

    def connect(*settings: str) -> object:
        opened.append(engine.connect(*settings))
        return opened[-1]

    monkeypatch.setattr(sql, "connect", connect)
    monkeypatch.setattr(sql, "_idle", [])
    step = Sql("select id, n * 2 as twice from records where n > 3")
    for _ in range(3):
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(step.apply, ROWS).result()
        assert done.rows["twice"].to_pylist() == [n * 2 for n in range(4, 30)]
    assert len(opened) == 1


def test_concurrent_threads_run_queries_on_their_own_rows() -> None:
    step = Sql("select n, n * 2 as twice from records")
    parts = [ROWS.slice(n, 10) for n in range(20)] * 3
    with ThreadPoolExecutor(4) as pool:
        for part, done in zip(parts, pool.map(step.apply, parts), strict=True):
            assert done.rows["n"] == part["n"]
            assert done.rows["twice"].to_pylist() == [n * 2 for n in part["n"].to_pylist()]


def test_missing_duckdb_is_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from transforms.steps import sql

    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.setattr(sql, "_idle", [])
    with pytest.raises(
        InvalidConfig, match=r"needs DuckDB, .* pip install '/path/to/lakemark\[sql\]'"
    ):
        Sql("select id from records").output_schema(SCHEMA)


def test_a_wrong_pattern_in_a_value_rejects_its_record() -> None:
    step = Sql("select id, 'a' like 'a' escape id as found from records")
    rows = ROWS.slice(0, 3).set_column(0, "id", pa.array(["!", "two", "?"]))
    done = step.apply(rows)
    assert done.rows["id"].to_pylist() == ["!", "?"]
    assert "Invalid escape string" in done.rejected[1]


def test_values_of_types_that_no_column_has_become_text() -> None:
    query = (
        "select *, id, cast(case n when 3 then 'x' else '0101' end as bit) as flags, "
        "[cast('1' as bit)] as list, {'a': cast('10' as bit)} as struct, "
        "cast('340282366920938463463374607431768211455' as uhugeint) as large, "
        "cast(n as hugeint) as number from records where n < 4"
    )
    step = Sql(query)
    schema = step.output_schema(SCHEMA)
    assert schema.field("flags").type == pa.string()
    assert schema.field("number").type == pa.decimal128(38, 0)
    found = step.apply(ROWS)
    assert found.rows.schema == schema
    assert list(found.rejected) == [3]
    assert found.rows["flags"].to_pylist() == ["0101"] * 3
    assert found.rows["list"].to_pylist() == [["1"]] * 3
    assert found.rows["struct"].to_pylist() == [{"a": "10"}] * 3
    assert found.rows["large"].to_pylist() == [str(2**128 - 1)] * 3
    assert found.rows["number"].to_pylist() == [0, 1, 2]
