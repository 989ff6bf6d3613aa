"""The workloads of the ingest benchmark are what its page says, and their newest state is right."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.workloads.catalog import WORKLOADS
from benchmarks.workloads.messages import DELETED
from benchmarks.workloads.workload import Phase, Workload
from streamer.demo.order_messages import order_messages
from tests.depth import examples

Row = dict[str, Any]

workloads = st.sampled_from(sorted(WORKLOADS)).map(WORKLOADS.__getitem__)


@given(workload=workloads, records=st.integers(1, 1_500))
@settings(max_examples=examples(30))
def test_the_newest_rows_are_those_of_a_dictionary(workload: Workload, records: int) -> None:
    workload = workload.resized(records, None)
    changes = list(decoded(workload))
    expected = workload.newest_rows()
    rows = newest_by_key(changes)
    assert expected.equals(pa.Table.from_pylist(rows, expected.schema).sort_by("order_id"))
    assert rows == newest_if_deletes_are_forgotten(changes)


@given(workload=workloads, first=st.integers(0, 900), count=st.integers(1, 900))
@settings(max_examples=examples(20))
def test_records_that_are_sent_later_continue_the_sequence(
    workload: Workload, first: int, count: int
) -> None:
    workload = workload.resized(first + count, None)
    whole = joined(workload.messages(0, first + count))
    assert whole.slice(0, first).equals(joined(workload.messages(0, first)))
    assert whole.slice(first).equals(joined(workload.messages(first, count)))


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_no_two_changes_to_a_key_have_the_same_ordering_value(name: str) -> None:
    changes = decoded(WORKLOADS[name].resized(3_000, None))
    counted = Counter((change["order_id"], change["updated_at"]) for change in changes)
    assert max(counted.values()) == 1


def test_upserts_are_the_orders_of_the_demo() -> None:
    workload = WORKLOADS["upserts_2m"]
    demo = joined(order_messages(2_000, keys=400_000, mix=workload.mix))
    assert joined(workload.messages(0, 2_000)).equals(demo)


def test_a_record_has_about_230_bytes() -> None:
    values = joined(WORKLOADS["upserts_1m"].messages(0, 1_000))["value"]
    assert 215 < pc.mean(pc.binary_length(values)).as_py() < 245


def test_every_record_of_insert_only_has_a_new_key() -> None:
    workload = WORKLOADS["insert_only"].resized(70_000, None)
    assert workload.newest_rows().num_rows == 70_000


def test_one_record_in_ten_is_a_delete() -> None:
    changes = list(decoded(WORKLOADS["deletes"].resized(5_000, None)))
    assert 0.08 < sum(change[DELETED] for change in changes) / len(changes) < 0.12


def test_skewed_keys_follow_the_law_of_zipf() -> None:
    workload = WORKLOADS["skewed_keys"].resized(50_000, None)
    counted = Counter(joined(workload.messages(0, 50_000))["key"].to_pylist())
    counts = [count for _, count in counted.most_common(10)]
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.2)
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.3)


def test_wide_rows_have_100_columns_and_partitions_200_has_200() -> None:
    assert len(WORKLOADS["wide_rows"].table_shape().columns) == 100
    rows = WORKLOADS["partitions_200"].resized(10_000, None).newest_rows()
    assert pc.count_distinct(rows["region"]).as_py() == 200


def test_small_batches_follow_large_ones() -> None:
    workload = WORKLOADS["small_batches"].resized(5_000, 1_000).with_last_batches(7)
    assert workload.phases == (Phase(5_000, 1_000), Phase(700, 100))


def decoded(workload: Workload) -> Iterator[Row]:
    """Decode the records of a workload as other programs do."""
    shape = workload.table_shape()
    for value in joined(workload.messages(0, workload.records))["value"].to_pylist():
        if shape.avro_schema is None:
            yield with_decimals(json.loads(value), shape.columns)
        else:
            schema = fastavro.parse_schema(json.loads(shape.avro_schema))
            record = fastavro.schemaless_reader(io.BytesIO(value), schema, None)
            assert isinstance(record, dict)
            yield {**record, DELETED: False}


def with_decimals(row: Row, types: Mapping[str, str]) -> Row:
    is_decimal = {name for name, kind in types.items() if kind.startswith("decimal")}
    return {name: Decimal(value) if name in is_decimal else value for name, value in row.items()}


def newest_by_key(changes: Iterable[Row]) -> list[Row]:
    """Keep the change with the largest ordering value of each key, deletes included."""
    newest: dict[str, Row] = {}
    for change in changes:
        held = newest.get(change["order_id"])
        if held is None or change["updated_at"] > held["updated_at"]:
            newest[change["order_id"]] = change
    return by_key(change for change in newest.values() if not change[DELETED])


def newest_if_deletes_are_forgotten(changes: Iterable[Row]) -> list[Row]:
    """As above, but as an engine that does not remember deletes."""
    newest: dict[str, Row] = {}
    for change in changes:
        held = newest.get(change["order_id"])
        if held is None or change["updated_at"] > held["updated_at"]:
            newest[change["order_id"]] = change
            if change[DELETED]:
                del newest[change["order_id"]]
    return by_key(newest.values())


def by_key(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: str(row["order_id"]))


def joined(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary())])
    return pa.Table.from_batches(batches, schema).combine_chunks()
