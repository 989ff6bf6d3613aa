"""The records of the benchmark are what its page says they are."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.orders import KAFKA_PARTITIONS, Orders, as_json, newest


def _all(orders: Orders) -> pa.Table:
    return pa.concat_tables(orders.chunks())


def test_a_record_is_json_of_its_row_and_about_230_bytes() -> None:
    rows = _all(Orders(0, 1000))
    texts = as_json(rows).to_pylist()
    assert [json.loads(text) for text in texts] == rows.to_pylist()
    assert 220 < sum(map(len, texts)) / len(texts) < 240


def test_runs_are_alike_and_a_key_keeps_to_one_kafka_partition() -> None:
    orders = Orders(200_000, 150_000, keys=4_000)
    rows = _all(orders)
    assert rows.equals(_all(orders))
    lanes: dict[str, set[int]] = {}
    for row, key in enumerate(rows["order_id"].to_pylist()):
        lanes.setdefault(key, set()).add(row % KAFKA_PARTITIONS)
    assert all(len(lane) == 1 for lane in lanes.values())


def test_ordering_values_are_unique_and_some_arrive_late() -> None:
    values = _all(Orders(0, 200_000))["updated_at"]
    assert pc.count_distinct(values).as_py() == 200_000
    steps = pc.pairwise_diff(values.combine_chunks())
    assert pc.any(pc.less(steps, 0)).as_py()


def test_the_newest_rows_are_those_that_a_dict_keeps() -> None:
    ranges = [Orders(0, 20_000, keys=400), Orders(20_000, 400, keys=400)]
    model: dict[str, dict[str, object]] = {}
    for orders in ranges:
        for row in sorted(_all(orders).to_pylist(), key=lambda row: row["updated_at"]):
            known = model.get(row["order_id"])
            if known is None or known["updated_at"] < row["updated_at"]:
                model[row["order_id"]] = row
    rows = newest(ranges).to_pylist()
    assert {row["order_id"]: row for row in rows} == model
    assert len(rows) == len(model)
