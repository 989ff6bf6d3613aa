"""The topics of the benchmark of Debezium contain the same rows in each form."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.debezium import pipeline_of
from benchmarks.workloads.change_events import Form, messages
from streamer.config.load import validated
from streamer.prepared_sink import prepare_sink

COUNT = 500


def values(form: Form) -> pa.ChunkedArray:
    return pa.chunked_array([batch["value"] for batch in messages(form, COUNT, 100)])


def rows(form: Form) -> pa.Table:
    pipeline = pipeline_of(form)
    source = {**pipeline["source"], "bootstrap_servers": "localhost:9092"}
    table = {"path": "none", "record_key": ["order_id"], "ordering": ["updated_at"]}
    converter = prepare_sink(validated({**pipeline, "source": source, "table": table}), None)
    zeros = np.zeros(COUNT, np.int64)
    records = {
        "key": pa.nulls(COUNT, pa.binary()),
        "value": values(form),
        "partition": pa.array(zeros, pa.int32()),
        "offset": np.arange(COUNT),
        "timestamp": pa.array(zeros, pa.timestamp("us", "UTC")),
    }
    done = converter.converter(pa.table(records))
    assert not len(done.rejects)
    return done.changes


@pytest.mark.parametrize("form", [form for form in Form if form is not Form.ROW])
def test_events_contain_the_rows_of_plain_json(form: Form) -> None:
    expected, found = rows(Form.ROW), rows(form)
    assert found.select(expected.column_names) == expected
    assert found["_position"] == expected["updated_at"]


def test_envelopes_are_as_large_as_those_of_debezium() -> None:
    sizes = {form: values(form).nbytes // COUNT for form in Form}
    assert 180 < sizes[Form.ROW] < 260
    assert 2 * sizes[Form.ROW] < sizes[Form.EVENT] < 4 * sizes[Form.ROW]
    first = json.loads(values(Form.WITH_SCHEMA)[0].as_py())
    assert {one["field"] for one in first["schema"]["fields"]} == {*first["payload"]}
