"""The rejects of a batch are counted by the code of their reason."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sinks.letter_layout import WITHOUT_DAYS
from sinks.reject_counts import RejectCount, count_by_code, merge_counts
from streamer import pipeline
from streamer.config.load import validated
from streamer.events import Event, RecordsRejected
from transforms.raw_records import HEADERS_TYPE
from transforms.reject_reason import RejectCode, RejectReason
from transforms.rejects import Rejects, Stage

_CODES = st.sampled_from(list(RejectCode)[:4])


def _changes(first_offset: int, codes: list[RejectCode]) -> pa.Table:
    count = len(codes)
    records = pa.table(
        {
            "topic": pa.repeat("orders", count),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
            "offset": pa.array(range(first_offset, first_offset + count), pa.int64()),
            "timestamp": pa.nulls(count, pa.timestamp("us", "UTC")),
            "key": pa.nulls(count, pa.binary()),
            "value": pa.nulls(count, pa.binary()),
            "headers": pa.nulls(count, HEADERS_TYPE),
        }
    )
    reasons = [RejectReason(code, f"reason {n}") for n, code in enumerate(codes, first_offset)]
    return WITHOUT_DAYS.to_changes(
        Rejects.from_records(records, np.arange(count), reasons, Stage.DECODE)
    )


@given(st.lists(st.lists(_CODES, max_size=6), max_size=4))
def test_counts_and_first_records_are_those_of_all_tables(tables: list[list[RejectCode]]) -> None:
    counts, codes = list[RejectCount](), list[RejectCode]()
    for one in tables:
        counts += count_by_code(_changes(len(codes), one))
        codes += one
    merged = merge_counts(counts)
    assert {one.code: one.count for one in merged} == {
        code.value: count for code, count in Counter(codes).items()
    }
    assert {one.code: one.first for one in merged} == {
        code.value: f"orders 0:{codes.index(code)}: reason {codes.index(code)}" for code in codes
    }


def test_rows_of_a_pipeline_are_not_counted() -> None:
    assert count_by_code(pa.table({"code": ["a", "b"]})) == ()


def test_run_reports_the_number_of_rejects_and_one_record_of_each_code(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    lines = ["{", json.dumps({"id": "a", "n": "x"}), "[", json.dumps({"id": "b", "n": 1}), "}"]
    (source / "a.json").write_text("\n".join(lines))
    config = validated(
        {
            "source": {"kind": "files", "path": str(source), "format": "json"},
            "decode": {"schema": {"id": "string", "n": "bigint"}},
            "table": {"path": str(tmp_path / "rows"), "record_key": "id", "buckets": 2},
            "run": {"mode": "once"},
        }
    )
    events = list[Event]()
    with pipeline.build(config, events.append) as built:
        built.loop.run()
    (rejected,) = [one for one in events if isinstance(one, RecordsRejected)]
    found = {one.code: (one.count, one.first.partition(": ")[0]) for one in rejected.codes}
    path = f"file://{source}/a.json"
    assert found == {
        RejectCode.INVALID_MESSAGE: (3, f"{path} 0:0"),
        RejectCode.INVALID_VALUE: (1, f"{path} 0:1"),
    }
