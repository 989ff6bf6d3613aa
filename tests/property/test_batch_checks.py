"""A check judges the same rows, however the records of its batch are divided into chunks."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.config.table_properties import TableProperties
from lakemark.index.bucket import BucketIndex
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.meta_columns import IS_DELETED
from lakemark.storage import StorageLocation
from lakemark.timeline.clock import TimelineClock
from sinks.hudi.check_run import CheckRun, StoredTable
from sinks.hudi.exchange import PortionKind
from sinks.hudi.prepare import PrepareChunk
from tests.depth import examples
from transforms.batch_checks import BatchCheck, columns_of_checks
from transforms.decode.json import JsonDecoder
from transforms.expectations import Outcome, Rule
from transforms.record_converter import RecordConverter
from transforms.schema_text import parse_schema

COLUMNS = {"id": "string", "n": "int", "x": "double"}
REPEATED = "select id, count(*) as times from batch group by id having count(*) > 1 order by id"
NEGATIVE = "select sum(n) as n from batch where n < 0 having count(*) > 0"
ALL = "from batch order by id, n, x"

_records = st.fixed_dictionaries(
    {"id": st.none() | st.sampled_from("abc"), "n": st.integers(-3, 20)},
    optional={"x": st.floats(-9, 9), IS_DELETED: st.booleans()},
)


def run(checks: tuple[BatchCheck, ...], rows: list[dict[str, Any]], cuts: list[int]) -> Any:
    index = BucketIndex(2, ("id",))
    rule = Rule(path="expect.9", name="r", condition="n < 15", outcome=Outcome.DEAD_LETTER)
    converter = RecordConverter(
        decoder=JsonDecoder(parse_schema(COLUMNS)),
        key_generator=KeyGenerator(KeyGeneratorConfig(("id",))),
        topic="t",
        rules=(rule,),
        checks=checks,
    )
    columns = converter.table_schema
    prepare = PrepareChunk(
        converter=converter,
        row_index=index,
        reject_index=index,
        checked=columns_of_checks(checks, columns),
    )
    records = pa.table(
        {
            "partition": pa.array([0] * len(rows), pa.int32()),
            "offset": pa.array(range(len(rows)), pa.int64()),
            "timestamp": pa.array([0] * len(rows), pa.timestamp("us", "UTC")),
            "key": pa.array([None] * len(rows), pa.binary()),
            "value": pa.array([json.dumps(row).encode() for row in rows], pa.binary()),
        }
    )
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    portions = [
        one
        for begin, end in pairwise(edges)
        for one in prepare(records.slice(begin, end - begin), 1)
        if one.kind is PortionKind.CHECKED_ROWS
    ]
    nowhere = StoredTable(StorageLocation("/none"), TableProperties({}), (), TimelineClock(None))
    judged = CheckRun(checks, nowhere, columns)
    return judged([one.content.rows for one in portions]).results


@settings(max_examples=examples(60))
@given(st.lists(_records, max_size=12), st.lists(st.integers(0, 12), max_size=3))
def test_checks_judge_the_rows_that_would_be_written(
    rows: list[dict[str, Any]], cuts: list[int]
) -> None:
    checks = tuple(
        BatchCheck(path=f"expect.{n}", name=str(n), query=query, outcome=Outcome.WARN)
        for n, query in enumerate((REPEATED, NEGATIVE, ALL))
    )
    kept = [row for row in rows if row["id"] and row["n"] < 15 and not row.get(IS_DELETED)]
    times = Counter(row["id"] for row in kept)
    repeated = [f"id={key}, times={count}" for key, count in sorted(times.items()) if count > 1]
    negative = [row["n"] for row in kept if row["n"] < 0]
    by_repeats, by_sign, by_all = run(checks, rows, cuts)
    assert list(by_repeats.first) == repeated
    assert by_sign.first == ((f"n={sum(negative)}",) if negative else ())
    assert by_all.count == len(kept)
    (alone,) = run(checks[:1], rows, cuts)
    assert alone == by_repeats
