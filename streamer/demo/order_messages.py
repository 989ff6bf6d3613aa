"""Converts order events to rows, and to Kafka messages of about 230 bytes of JSON."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamer.demo.order_stream import EventBlock, EventKind, OrderMix, event_blocks

REGIONS = ("apac", "emea", "latam", "namer")
STATUSES = ("created", "paid", "packed", "shipped", "delivered")

#: The columns of the table. Tables are partitioned by region, which an order never changes.
ORDER_SCHEMA = pa.schema(
    [
        pa.field("order_id", pa.string(), nullable=False),
        pa.field("customer", pa.string()),
        pa.field("region", pa.string()),
        pa.field("status", pa.string()),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("quantity", pa.int32()),
        pa.field("updated_at", pa.int64()),
        pa.field("note", pa.string()),
    ]
)

#: The key and the value of a message; the value of a tombstone is null.
MESSAGE_SCHEMA = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary())])

DEFAULT_MIX = OrderMix()

_WAYS = ("leave it", "ring twice", "knock and wait", "call ahead", "ask the neighbour")
_PLACES = (
    "at the front door, please",
    "by the garden shed behind the house",
    "with the porter, who is in from nine to five",
    "at the counter of the shop next door",
)


def orders(count: int, keys: int = 10_000, seed: int = 0, mix: OrderMix = DEFAULT_MIX) -> pa.Table:
    """Return the first ``count`` messages of a stream, as a table with the columns key and value.

    Args:
        count: the number of messages.
        keys: the number of orders.
        seed: identifies the stream.
        mix: the shares of late events, repeats, deletes and broken records.
    """
    messages = order_messages(count, keys, seed, mix)
    return pa.Table.from_batches(messages, MESSAGE_SCHEMA)


def order_messages(
    count: int, keys: int = 10_000, seed: int = 0, mix: OrderMix = DEFAULT_MIX, first: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the ``count`` messages of a stream that begin at message ``first``, in batches."""
    for events in event_blocks(count, keys, seed, mix, first):
        rows = order_rows(events)
        key = pc.cast(rows["order_id"], pa.binary())
        yield pa.RecordBatch.from_arrays([key, _values(events, rows)], schema=MESSAGE_SCHEMA)


def order_rows(events: EventBlock) -> pa.RecordBatch:
    """Return events of any kind as rows of ``ORDER_SCHEMA``."""
    cents = events.quantity * (499 + events.order * 37 % 9_500)
    columns = [
        _numbered("o-", events.order, 8),
        _numbered("c-", events.order * 7_919 % 50_000, 6),
        _pick(REGIONS, events.order),
        _pick(STATUSES, events.stage),
        pc.cast(_money(cents), pa.decimal128(10, 2)),
        pa.array(events.quantity, pa.int32()),
        pa.array(events.updated_at),
        _pick(_notes(), events.note),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ORDER_SCHEMA)


def _values(events: EventBlock, rows: pa.RecordBatch) -> pa.Array:
    """Return the values of the messages. Their texts contain nothing that JSON must escape."""
    values = _json(rows, pa.array(events.kind == EventKind.DELETE))
    broken = events.kind == EventKind.BROKEN
    if broken.any():
        spoilt = _spoil(values.filter(pa.array(broken)), events.number[broken])
        values = pc.replace_with_mask(values, pa.array(broken), spoilt)
    is_tombstone = pa.array(events.kind == EventKind.TOMBSTONE)
    return pc.if_else(is_tombstone, pa.scalar(None, pa.binary()), pc.cast(values, pa.binary()))


def _json(rows: pa.RecordBatch, is_deleted: pa.BooleanArray) -> pa.StringArray:
    parts: list[pa.Array | str] = []
    for field in rows.schema:
        quote = "" if pa.types.is_integer(field.type) else '"'
        lead = "," if parts else "{"
        values = pc.cast(rows[field.name], pa.string())
        parts += [f'{lead}"{field.name}":{quote}', values, quote]
    parts += [',"_hoodie_is_deleted":', pc.cast(is_deleted, pa.string()), "}"]
    return pc.binary_join_element_wise(*parts, "")


def _spoil(values: pa.StringArray, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    """Damage values in three ways: cut short, without the key, or with text instead of a number."""
    cut_short = pc.utf8_slice_codeunits(values, 0, 60)
    keyless = pc.replace_substring(values, '"order_id"', '"id"')
    wrong_type = pc.replace_substring_regex(values, r'"quantity":(\d)', r'"quantity":"many \1"')
    return pc.choose(pa.array(numbers % 3), cut_short, keyless, wrong_type)


def _numbered(
    prefix: str, numbers: np.ndarray[tuple[int], np.dtype[np.int64]], width: int
) -> pa.StringArray:
    digits = pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), width, "0")
    return pc.binary_join_element_wise(prefix, digits, "")


def _money(cents: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.StringArray:
    whole = pc.cast(pa.array(cents // 100), pa.string())
    return pc.binary_join_element_wise(whole, _numbered("", cents % 100, 2), ".")


def _pick(
    words: tuple[str, ...], numbers: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> pa.StringArray:
    return pa.array(words).take(pa.array(numbers % len(words)))


@lru_cache(maxsize=1)
def _notes() -> tuple[str, ...]:
    return tuple(f"{way} {place}" for way in _WAYS for place in _PLACES)
