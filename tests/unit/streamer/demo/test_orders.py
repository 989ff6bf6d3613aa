"""The order stream and its expected table agree with a model that reads single messages."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.demo import ORDER_SCHEMA, OrderMix, expected_orders, order_messages, orders
from streamer.demo.order_stream import BLOCK_EVENTS
from tests.depth import examples

shares = st.sampled_from([0.0, 0.01, 0.15])
mixes = st.builds(OrderMix, shares, shares, shares, shares, shares)
PLAIN = OrderMix(0, 0, 0, 0, 0)


def decoded(value: bytes) -> dict[str, Any] | None:
    """Decode an order; None if a decoder with the table's schema must reject it."""
    try:
        order: dict[str, Any] = json.loads(value)
    except ValueError:
        return None
    fits = order.get("order_id") is not None and isinstance(order["quantity"], int)
    return order if fits else None


@settings(max_examples=examples(12), deadline=None)
@given(
    mix=mixes,
    seed=st.integers(0, 9),
    keys=st.sampled_from([1, 20, 3_000]),
    count=st.sampled_from([1, 500, 4_000]),
    forgets=st.booleans(),
)
def test_the_expected_table_is_what_event_time_order_comes_to(
    mix: OrderMix, seed: int, keys: int, count: int, forgets: bool
) -> None:
    """The expected table is the result of event-time order.

    If ``forgets`` is set, the model forgets a delete at once, as a compaction does; otherwise
    never.
    """
    newest: dict[bytes, dict[str, Any]] = {}
    broken_count = 0
    for key, value in messages(orders(count, keys, seed, mix)):
        if value is None:
            newest.pop(key, None)
            continue
        order = decoded(value)
        if order is None:
            broken_count += 1
        elif key not in newest or newest[key]["updated_at"] <= order["updated_at"]:
            newest[key] = order
            if forgets and order["_hoodie_is_deleted"]:
                del newest[key]
    expected = expected_orders(count, keys, seed, mix)
    assert expected.broken_count == broken_count
    assert expected.rows.schema == ORDER_SCHEMA
    assert as_json(expected.rows) == {
        key.decode(): {name: order[name] for name in ORDER_SCHEMA.names}
        for key, order in sorted(newest.items())
        if not order["_hoodie_is_deleted"]
    }


def messages(table: pa.Table) -> list[tuple[bytes, bytes | None]]:
    return list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def as_json(rows: pa.Table) -> dict[str, dict[str, Any]]:
    return {row["order_id"]: {**row, "amount": str(row["amount"])} for row in rows.to_pylist()}


def test_longer_stream_begins_with_the_shorter_and_can_be_resumed_anywhere() -> None:
    count = BLOCK_EVENTS + 3_000
    whole = orders(count, keys=500)
    assert orders(count - 2_500, keys=500) == whole.slice(0, count - 2_500)
    for first in (1, BLOCK_EVENTS - 1, BLOCK_EVENTS, count - 1):
        rest = pa.Table.from_batches(order_messages(count - first, keys=500, first=first))
        assert rest == whole.slice(first)
    assert orders(10, seed=1) != orders(10, seed=2)


def test_each_kind_has_its_share_and_a_message_about_230_bytes() -> None:
    mix = OrderMix(late=0.1, repeated=0.05, deleted=0.04, tombstones=0.03, broken=0.02)
    count, keys = 50_000, 50_000
    table = orders(count, keys, 0, mix)
    values = table["value"]
    assert 0.95 < values.null_count / (count * mix.tombstones) < 1.05
    deleted = pc.sum(pc.match_substring(pc.cast(values, pa.string()), '_deleted":true')).as_py()
    assert 0.95 < deleted / (count * mix.deleted) < 1.05
    broken = expected_orders(count, keys, 0, mix).broken_count
    assert 0.9 < broken / (count * mix.broken) < 1.1
    times = [
        order["updated_at"] for _, value in messages(table) if value and (order := decoded(value))
    ]
    late = sum(later < earlier for earlier, later in pairwise(times))
    assert late > count * mix.late * 0.8
    repeats = len(times) - len(set(times))
    assert 0.9 < repeats / (count * mix.repeated) < 1.1
    assert pc.mean(pc.binary_length(orders(10_000, mix=PLAIN)["value"])).as_py() == pytest.approx(
        230, abs=10
    )


def test_an_order_moves_forward_and_keeps_its_region() -> None:
    stages: dict[bytes, list[str]] = {}
    regions: dict[bytes, set[str]] = {}
    for key, value in messages(orders(2_000, 100, 0, PLAIN)):
        assert value is not None
        order = json.loads(value)
        stages.setdefault(key, []).append(order["status"])
        regions.setdefault(key, set()).add(order["region"])
    way = ["created", "paid", "packed", "shipped", "delivered"]
    assert all(seen == (way + way[-1:] * len(seen))[: len(seen)] for seen in stages.values())
    assert all(len(seen) == 1 for seen in regions.values())
    assert len(set.union(*regions.values())) == 4
