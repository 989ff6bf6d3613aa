"""Queries on batches read ``batch`` and ``stored`` only, and say which columns they read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakemark.errors import InvalidConfig
from transforms.batch_query import check_query, columns_read, reads_stored

COLUMNS = pa.schema(
    [("id", pa.string()), ("amount", pa.float64()), ("p", pa.struct([("x", pa.int32())]))]
)
ALL = ("id", "amount", "p")


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("select count(*) as n from batch having count(*) < 10", ("id",)),
        ("from batch select Amount", ("amount",)),
        ("select id, count(*) from batch group by all having count(*) > 1", ("id",)),
        ("select b.id from batch b semi join stored using (amount);", ("id", "amount")),
        ("select p.x from batch", ("p",)),
        ("select * from batch where amount < 0", ALL),
        ("select batch from batch", ALL),
        ("select b from batch b", ALL),
        ("select count(*) as n from batch b natural join batch c", ALL),
        ("select max(columns('a.*')) from batch", ALL),
        ("select x from (select amount from batch) q(x)", ALL),
        ("describe batch", ALL),
        ("select #2 from batch", ALL),
        ("select amount from batch b(amount)", ALL),
        ("select sum(amount) from batch -- in all", ("amount",)),
    ],
)
def test_columns_that_a_query_may_read_are_found(query: str, columns: tuple[str, ...]) -> None:
    check_query(query, COLUMNS)
    assert columns_read(query, COLUMNS) == columns
    kept = pa.schema([COLUMNS.field(name) for name in columns])
    if not reads_stored(query):
        check_query(query, kept)


def test_stored_rows_are_read_only_if_the_query_names_them() -> None:
    assert reads_stored("select id from batch where id not in (select id from stored)")
    assert not reads_stored("select 'stored' as stored from batch")
    assert not reads_stored("with stored as (from batch) select id from stored")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select nope from batch", 'the query does not fit the columns id, amount, p: .*"nope"'),
        ("select * from 'lake/x'", "there is no relation 'lake/x'; a check reads batch, and"),
        ("select * from snapshot('x')", "there is no relation 'snapshot'"),
        ("select * from main.batch", "there is no relation 'main.batch'"),
        ("select count(*) from query_table('stored')", r"query_table\(\) is not supported"),
        ("select (select count(*) from query('from stored'))", r"query\(\) is not supported"),
        ("select * from read_csv('x.csv')", "Permission Error"),
        ("delete from batch", "expected select"),
        ("select 1; select 2", "expected one query, not 2"),
        ("select id, from batch where", "the query cannot be parsed"),
    ],
)
def test_query_that_cannot_judge_a_batch_is_refused(query: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        check_query(query, COLUMNS)
