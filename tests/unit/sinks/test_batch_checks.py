"""Checks of ``expect`` judge whole batches: they warn, or stop the run before it publishes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakemark.config import keys
from lakemark.model.meta_columns import IS_DELETED
from tests.unit.sinks.test_expectations import Pipeline, order
from transforms.batch_checks import BatchCheckFailed, CheckResult, CheckViolation
from transforms.expectations import InvalidRule
from transforms.violations import ExpectationFailed

UNIQUE = {
    "check": "select id, count(*) as times from batch group by id having count(*) > 1 order by id",
    "name": "ids are unique",
    "otherwise": "warn",
}
NEW = {
    "check": "select id from batch semi join stored using (id) order by id",
    "name": "ids are new",
    "otherwise": "warn",
}


def test_violated_check_warns_and_is_counted_in_the_commit(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    rule = {"rule": "n >= 0", "otherwise": "dead_letter"}
    result = pipeline.write(
        [NEW, rule, UNIQUE],
        order("a", n=1),
        order("b", n=1),
        order("b", 2, n=2),
        order("b", 3, n=-1),
    )
    assert result.check_violations == (
        CheckViolation("ids are unique", "warn", CheckResult(1, ("id=b, times=2",))),
    )
    assert [(one.rule, one.count) for one in result.violations] == [("n >= 0", 1)]
    assert pipeline.values("n") == {"a": 1, "b": 2}
    assert json.loads(pipeline.extra()[keys.EXPECTATIONS]) == [
        {"rule": "n >= 0", "otherwise": "dead_letter", "violations": 1},
        {"check": "ids are new", "otherwise": "warn", "violations": 0},
        {"check": "ids are unique", "otherwise": "warn", "violations": 1},
    ]
    result = pipeline.write([NEW], order("b", 5), order("c"))
    assert [str(one.result) for one in result.check_violations] == ["returned 1 row: id=b"]


def test_failed_check_publishes_nothing_and_the_records_are_read_again(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    failing = {**UNIQUE, "otherwise": "fail"}
    reject = {"rule": "n >= 0", "otherwise": "dead_letter"}
    pipeline.write([failing, reject], order("a", n=1))
    bad = [order(f"k{n}", at, n=n) for n in range(7) for at in (1, 2)] + [order("z", n=-1)]
    for _ in range(2):
        with pytest.raises(BatchCheckFailed) as failed:
            pipeline.write([failing, reject], *bad)
        text = str(failed.value)
        assert text.startswith(
            "batch orders,0:1 to orders,0:16: expect.0: check 'ids are unique' (select id, count(*)"
        ), text
        assert "returned 7 rows, the first: id=k0, times=2; id=k1, times=2; " in text
        assert "id=k4, times=2; nothing of this batch was published; correct" in text
        assert pipeline.values("n") == {"a": 1}
        assert not pipeline.rows("_dead_letters")
    result = pipeline.write([UNIQUE, reject], *bad)
    assert (result.records, result.rejected) == (15, 1)
    assert pipeline.values("n") == {"a": 1} | {f"k{n}": n for n in range(7)}


def test_check_judges_neither_deletes_nor_rejects_but_also_a_batch_without_rows(
    tmp_path: Path,
) -> None:
    pipeline = Pipeline(tmp_path)
    count = {"check": "select count(*) as n from batch", "name": "count", "otherwise": "warn"}
    rule = {"rule": "n >= 0", "otherwise": "dead_letter"}
    gone = (order("a", 2, n=1, **{IS_DELETED: True}), b"no JSON", order("b", n=-1))
    for rows in (2, 0):
        kept = [order(f"r{n}", n=n) for n in range(rows)]
        (violation,) = pipeline.write([count, rule], *gone, *kept).check_violations
        assert violation.result.first == (f"n={rows}",)


def test_rules_come_before_checks(tmp_path: Path) -> None:
    both = [{**UNIQUE, "otherwise": "fail"}, {"rule": "n >= 0", "otherwise": "fail"}]
    with pytest.raises(ExpectationFailed):
        Pipeline(tmp_path).write(both, order("a", n=-1), order("a", n=-2))


def test_query_that_fails_on_values_violates_its_check(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    cast = {"check": "select id from batch where id::int < 0", "otherwise": "warn"}
    (violation,) = pipeline.write([cast], order("a", n=1)).check_violations
    assert "Could not convert string 'a' to INT32" in violation.result.error
    (fact,) = json.loads(pipeline.extra()[keys.EXPECTATIONS])
    assert fact["violations"] is None
    with pytest.raises(BatchCheckFailed, match="cannot judge the batch: the query cannot be exec"):
        pipeline.write([{**cast, "otherwise": "fail"}], order("b", n=1))


def test_checks_judge_columns_that_a_batch_adds(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, decode={"unknown_fields": "evolve"})
    every = {"check": "from batch", "name": "all", "otherwise": "warn"}
    (violation,) = pipeline.write([every], order("a", n=1, size=3)).check_violations
    assert violation.result.first == ("id=a, ts=1, n=1, price=None, tags=None, place=None, size=3",)
    later = {"check": "select sum(size) as size from batch", "name": "sum", "otherwise": "warn"}
    (violation,) = pipeline.write([later], order("b", size=4)).check_violations
    assert violation.result.first == ("size=4",)


def test_check_that_does_not_fit_is_refused_before_the_table_is_created(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, decode={"schema": "infer"})
    sample = {"id": "a", "ts": 1, "n": 1}
    with pytest.raises(InvalidRule, match=r'expect\.0\.check: .* column "m" not found'):
        pipeline.sink([{"check": "select m from batch", "otherwise": "warn"}], [sample])
    assert not [*tmp_path.iterdir()]
    pipeline.sink([{"check": "select n from batch", "otherwise": "warn"}], [sample])


def test_checks_do_not_judge_replayed_records(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.write([{"rule": "n >= 0", "otherwise": "dead_letter"}], order("a", n=-1))
    done = pipeline.replay([{"check": "from batch", "otherwise": "fail"}]).run(None)
    assert done.passed == 1
    assert pipeline.values("n") == {"a": -1}
    assert keys.EXPECTATIONS not in pipeline.extra()


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        # A time in milliseconds that was taken for seconds.
        (
            "select to_timestamp(1764400000000) as t from batch",
            "t=57881-08-11T07:06:40.000000+00:00",
        ),
        ("select 'infinity'::date as t from batch", "t=5881580-07-11"),
        ("select sum(n) as n from batch -- in all", "n=1"),
        ("select id, id from batch -- twice", "id=a, id_1=a"),
        ("select #1 from batch where n = 1", "id=a"),
    ],
)
def test_rows_of_any_query_are_shown(tmp_path: Path, query: str, shown: str) -> None:
    check = {"check": query, "name": "check", "otherwise": "warn"}
    (violation,) = Pipeline(tmp_path).write([check], order("a", n=1)).check_violations
    assert violation.result == CheckResult(1, (shown,))


def test_long_rows_are_cut_in_messages(tmp_path: Path) -> None:
    every = {"check": "select id from batch", "otherwise": "warn"}
    (violation,) = Pipeline(tmp_path).write([every], order("a" * 1_000)).check_violations
    (shown,) = violation.result.first
    assert len(shown) == 201
    assert shown.endswith("a…")
