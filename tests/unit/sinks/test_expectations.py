"""Rules of ``expect`` change, reject and count rows, or stop a batch before it is published."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from lakemark.config import keys
from lakemark.model.meta_columns import IS_DELETED
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation
from sinks.audit import Audit
from sinks.batch import BatchResult
from sinks.hudi.replay import LetterReplay
from sinks.hudi.sink import HudiSink
from streamer.config.load import validated
from streamer.pipeline import open_sink
from streamer.replay import open_replay
from streamer.sources.kafka import KafkaSource
from tests.json_stream import InThisProcess, Record, kafka_batch
from tests.unit.streamer.test_opened_sink import Topic
from transforms.expectations import InvalidRule
from transforms.violations import ExpectationFailed, RuleViolations

SCHEMA = {
    "id": "string",
    "ts": "bigint",
    "n": "int",
    "price": "decimal(10,2)",
    "tags": "array<string>",
    "place": "struct<city:string>",
}
Rules = Sequence[Mapping[str, object]]


class Pipeline:
    """A pipeline with rules, which may differ for each batch."""

    def __init__(self, folder: Path, **sections: Any) -> None:
        self._path, self._offset = str(folder / "rows"), 0
        self._tree: dict[str, Any] = {
            "source": {"bootstrap_servers": "b:1", "topic": "orders"},
            "decode": {"schema": SCHEMA},
            "table": {"path": self._path, "record_key": "id", "ordering": "ts"},
            "dead_letters": {"tolerated": 100},
        }
        for section, changes in sections.items():
            old = self._tree.get(section)
            self._tree[section] = {**old, **changes} if isinstance(old, dict) else changes

    def sink(self, rules: Rules, samples: Sequence[Mapping[str, object]] = ()) -> HudiSink:
        config = validated({**self._tree, "expect": rules})
        return open_sink(config, cast(KafkaSource, Topic(*samples)))[0]

    def write(self, rules: Rules, *records: Record) -> BatchResult:
        sink = self.sink(rules)
        sink.recover()
        checkpoint = sink.checkpoint()
        first = checkpoint.offsets_by_partition[0] if checkpoint else 0
        return sink.write(kafka_batch("orders", first, records), InThisProcess())

    def replay(self, rules: Rules) -> LetterReplay:
        return open_replay(validated({**self._tree, "expect": rules}))

    def table(self, suffix: str = "") -> OpenTable:
        return open_table(StorageLocation(self._path + suffix))

    def rows(self, suffix: str = "") -> list[dict[str, Any]]:
        rows = self.table(suffix).scan().to_reader().read_all().to_pylist()
        return [{n: v for n, v in row.items() if not n.startswith("_hoodie_")} for row in rows]

    def values(self, column: str) -> dict[str, object]:
        return {row["id"]: row[column] for row in self.rows()}

    def extra(self) -> Mapping[str, str]:
        table = self.table()
        newest = [one for one in table.timeline.instants if one.is_completed][-1]
        return table.store.read_commit(newest).extra_metadata


def order(key: str | None, ts: int = 1, **values: object) -> dict[str, object]:
    return {"id": key, "ts": ts, **values}


def test_each_outcome_does_what_it_says_and_is_counted(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    rules = [
        {"rule": "n < 100", "otherwise": "warn", "name": "n is small"},
        {"rule": "price >= 0", "otherwise": "set_null"},
        {"rule": "n >= 0", "otherwise": "dead_letter", "name": "n is positive"},
        {"rule": "ts > 0", "otherwise": "fail"},
    ]
    result = pipeline.write(
        rules,
        order("a", n=1, price=1),
        order("b", n=500, price=-1),
        order("c", n=-1, price=-2),
        order("d", n=None, price=None),
        order("e", n=200),
    )
    assert (result.records, result.rows, result.rejected) == (5, 4, 1)
    assert pipeline.values("n") == {"a": 1, "b": 500, "d": None, "e": 200}
    assert pipeline.values("price")["b"] is None
    (reject,) = pipeline.rows("_dead_letters")
    assert (reject["offset"], reject["stage"]) == (2, "expect")
    assert reject["reason"] == "expect.2: rule 'n is positive' (n >= 0) is violated"
    assert result.violations == (
        RuleViolations("n is small", "warn", 2, "orders 0:1"),
        RuleViolations("price >= 0", "set_null", 2, "orders 0:1"),
        RuleViolations("n is positive", "dead_letter", 1, "orders 0:2"),
    )
    extra = pipeline.extra()
    assert json.loads(extra[keys.EXPECTATIONS]) == [
        {"rule": "n is small", "otherwise": "warn", "violations": 2},
        {"rule": "price >= 0", "otherwise": "set_null", "violations": 2},
        {"rule": "n is positive", "otherwise": "dead_letter", "violations": 1},
        {"rule": "ts > 0", "otherwise": "fail", "violations": 0},
    ]
    audit = Audit.in_commit(extra)
    assert audit is not None
    assert (audit.written, audit.rejected) == (4, 1)


def test_commit_of_a_pipeline_without_rules_counts_none(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    assert pipeline.write([], order("a", n=-1)).violations == ()
    assert keys.EXPECTATIONS not in pipeline.extra()


def test_failed_rule_publishes_nothing_and_its_records_are_read_again(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    strict = [
        {"rule": "n >= 0", "otherwise": "fail", "name": "n is positive"},
        {"rule": "ts < 5", "otherwise": "dead_letter"},
    ]
    pipeline.write(strict, order("a", n=1))
    bad = (order("a", 2, n=2), order("b", n=-1), order("c", n=-2), order("d", 9, n=1))
    with pytest.raises(ExpectationFailed) as failed:
        pipeline.write(strict, *bad)
    assert str(failed.value).startswith(
        "expect.0: rule 'n is positive' (n >= 0) is violated by 2 rows, the first of record "
        "orders 0:2; nothing of this batch was published; correct the records or the rule"
    )
    assert [one.count for one in failed.value.violations] == [2, 1]
    assert pipeline.values("n") == {"a": 1}
    assert not pipeline.rows("_dead_letters")
    mended = [{**strict[0], "rule": "n >= -1", "otherwise": "dead_letter"}, *strict[1:]]
    result = pipeline.write(mended, *bad)
    assert (result.records, result.rejected) == (4, 2)
    assert pipeline.values("n") == {"a": 2, "b": -1}
    assert [row["offset"] for row in pipeline.rows("_dead_letters")] == [3, 4]


def test_deletes_and_rejected_records_are_not_judged(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    rules = [
        {"rule": "n >= 0", "otherwise": "fail"},
        {"rule": "n is not null", "otherwise": "fail"},
    ]
    pipeline.write(rules, order("a", n=1), order("b", n=1))
    deletes = (order("a", 2, n=-1, **{IS_DELETED: True}), order(None, 2, n=-1), b"no JSON")
    assert pipeline.write(rules, *deletes).violations == ()
    assert pipeline.values("n") == {"b": 1}


def test_column_of_any_type_is_set_to_null(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    rules = [
        {"rule": "n = 0", "otherwise": "set_null", "column": column, "name": column}
        for column in ("price", "tags", "place")
    ]
    values: dict[str, Any] = {"price": "1.50", "tags": ["x"], "place": {"city": "Bern"}}
    pipeline.write(rules, order("a", n=0, **values), order("b", n=1, **values))
    kept, changed = sorted(pipeline.rows(), key=lambda row: str(row["id"]))
    assert (kept["tags"], kept["place"]) == (["x"], {"city": "Bern"})
    assert [changed[name] for name in values] == [None, None, None]


def test_null_keeps_the_stored_value_if_nulls_do_not_overwrite(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, table={"partial_update": "ignore_defaults"})
    rules = [{"rule": "n >= 0", "otherwise": "set_null"}]
    pipeline.write(rules, order("a", 1, n=7, price=1))
    pipeline.write(rules, order("a", 2, n=-1, price=2))
    (row,) = pipeline.rows()
    assert (row["n"], row["price"], row["ts"]) == (7, 2, 2)


def test_record_with_several_rows_is_rejected_whole(tmp_path: Path) -> None:
    steps = [{"step": "explode", "column": "tags", "position": "line"}]
    pipeline = Pipeline(
        tmp_path,
        transform=steps,
        decode={"tombstones": "ignore"},
        table={"record_key": ["id", "line"]},
    )
    rules = [
        {"rule": "tags != 'bad'", "otherwise": "dead_letter"},
        {"rule": "tags != 'odd'", "otherwise": "warn"},
    ]
    tags = (["odd", "good"], ["good", "bad", "bad", "odd"], ["good"])
    records = [order(key, tags=some) for key, some in zip("abc", tags, strict=True)]
    result = pipeline.write(rules, *records)
    assert sorted((row["id"], row["tags"]) for row in pipeline.rows()) == [
        ("a", "good"),
        ("a", "odd"),
        ("c", "good"),
    ]
    assert result.rejected == 1
    assert [(one.outcome, one.count) for one in result.violations] == [
        ("dead_letter", 2),
        ("warn", 1),
    ]


def test_rules_judge_columns_that_a_batch_adds_or_widens(tmp_path: Path) -> None:
    evolve = {"unknown_fields": "evolve", "wider_values": "evolve"}
    pipeline = Pipeline(tmp_path, decode=evolve)
    rules = [{"rule": "n >= 0", "otherwise": "dead_letter"}]
    result = pipeline.write(rules, order("a", n=2**40, size=1), order("b", n=-(2**40), size=2))
    assert (result.rejected, [one.count for one in result.violations]) == (1, [1])
    assert pipeline.values("n") == {"a": 2**40}
    later = [*rules, {"rule": "size < 9", "otherwise": "warn"}]
    assert [one.rule for one in pipeline.write(later, order("c", size=9)).violations] == [
        "size < 9"
    ]


def test_record_that_a_rule_rejects_adds_no_column(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, decode={"unknown_fields": "evolve"})
    rules = [{"rule": "n >= 0", "otherwise": "dead_letter"}]
    assert not pipeline.write(rules, order("a", n=1), order("b", n=-1, odd=1)).schema_changes
    assert "odd" not in pipeline.rows()[0]


def test_rule_that_does_not_fit_is_refused_before_the_table_is_created(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, decode={"schema": "infer"})
    sample = {"id": "a", "ts": 1, "n": 1}
    with pytest.raises(InvalidRule, match=r"expect\.0\.rule: .* there is no column 'm'"):
        pipeline.sink([{"rule": "m > 0", "otherwise": "warn"}], [sample])
    with pytest.raises(
        InvalidRule, match=r"expect\.0\.otherwise: column 'ts' cannot be set to null"
    ):
        pipeline.sink([{"rule": "ts > 0", "otherwise": "set_null"}], [sample])
    assert not [*tmp_path.iterdir()]
    pipeline.sink([{"rule": "n > 0", "otherwise": "warn"}], [sample])


def test_rules_judge_replayed_records_too(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.write(
        [{"rule": "n >= 0", "otherwise": "dead_letter"}], order("a", n=-1), order("b", n=-2)
    )
    stopping: Rules = [{"rule": "n > -2", "otherwise": "fail"}]
    with pytest.raises(ExpectationFailed, match="orders 0:1"):
        pipeline.replay(stopping).preview(None)
    with pytest.raises(ExpectationFailed, match="orders 0:1"):
        pipeline.replay(stopping).run(None)
    assert pipeline.rows() == []

    done = pipeline.replay([{"rule": "n >= -1", "otherwise": "dead_letter"}]).run(None)
    assert (done.passed, sum(one.num_rows for one in done.failed)) == (1, 1)
    assert pipeline.values("n") == {"a": -1}
    codes = {row["offset"]: row["code"] for row in pipeline.rows("_dead_letters")}
    assert codes[1] == "rule_violated"
    assert json.loads(pipeline.extra()["lakemark.expectations"])[0]["violations"] == 1
