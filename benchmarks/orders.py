"""The rows of the read benchmark: orders of twenty columns, derived from the row's number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers: TypeAlias = npt.NDArray[np.int64]

KEY = "order_id"
PARTITION = "region"
ORDERING = "updated_at"
#: The row's number, which ascends within every base file.
SEQUENCE = "sequence"

SCHEMA = pa.schema(
    [
        (KEY, pa.string()),
        (PARTITION, pa.string()),
        (ORDERING, pa.int64()),
        (SEQUENCE, pa.int64()),
        ("placed_at", pa.timestamp("us", "UTC")),
        ("shipped_on", pa.date32()),
        ("customer", pa.string()),
        ("email", pa.string()),
        ("status", pa.string()),
        ("channel", pa.string()),
        ("currency", pa.string()),
        ("sku", pa.string()),
        ("city", pa.string()),
        ("note", pa.string()),
        ("quantity", pa.int32()),
        ("attempts", pa.int32()),
        ("amount", pa.decimal128(10, 2)),
        ("discount", pa.float64()),
        ("weight_kg", pa.float32()),
        ("is_gift", pa.bool_()),
    ]
)

_STATUSES = ("placed", "paid", "packed", "shipped", "delivered", "returned", "cancelled")
_CHANNELS = ("web", "phone", "shop", "partner")
_CURRENCIES = ("EUR", "USD", "GBP", "JPY", "CHF")
_WORDS = tuple(f"{one}{two}" for one in ("pa", "li", "so", "ter", "ma") for two in "klmnrstvwz")
_CITIES = tuple(f"{word.title()}{end}" for word in _WORDS for end in ("burg", "ton", "ville", ""))
_WORDS_IN_NOTE = 6

_FIRST_S = 1_767_225_600
_SECONDS_BETWEEN_VERSIONS = 1_000_000
_ORDERS_PER_SECOND = 4
_ORDERS_PER_DAY = 86_400 * _ORDERS_PER_SECOND
_MICROS = 1_000_000


def keys(numbers: Numbers) -> pa.Array:
    """Generate the record keys, all of the same length."""
    return pc.binary_join_element_wise("order", _digits(numbers, 10), "-")


def partition_path(partition: int) -> str:
    """Return the partition path of the rows whose number leaves this remainder."""
    return f"region{partition:03d}"


def rows(numbers: Numbers, partitions: int, version: int = 0) -> pa.Table:
    """Generate the rows with these numbers, with the columns of ``SCHEMA``."""
    draw = _Draw(numbers, version)
    first_day = _FIRST_S // 86_400
    regions = [partition_path(partition) for partition in range(partitions)]
    seconds = numbers // _ORDERS_PER_SECOND + _FIRST_S
    columns: list[pa.Array] = [
        keys(numbers),
        _chosen(regions, numbers % partitions),
        pa.array(seconds + version * _SECONDS_BETWEEN_VERSIONS),
        pa.array(numbers),
        pa.array(_FIRST_S * _MICROS + numbers * (_MICROS // _ORDERS_PER_SECOND)),
        pa.array((first_day + numbers // _ORDERS_PER_DAY).astype(np.int32)),
        _digits(draw.below(1_000_000), 8),
        pc.binary_join_element_wise(draw.one_of(_WORDS), draw.one_of(_CITIES), "@"),
        draw.one_of(_STATUSES),
        draw.one_of(_CHANNELS),
        draw.one_of(_CURRENCIES),
        pc.binary_join_element_wise("sku", _digits(draw.below(50_000), 6), "-"),
        draw.one_of(_CITIES),
        pc.binary_join_element_wise(*(draw.one_of(_WORDS) for _ in range(_WORDS_IN_NOTE)), " "),
        pa.array(draw.below(20).astype(np.int32)),
        pa.array(draw.below(5).astype(np.int32)),
        decimals(draw.below(1_000_000), SCHEMA.field("amount").type),
        pa.array(draw.below(1_000) / 1_000),
        pa.array((draw.below(100_000) / 1_000).astype(np.float32)),
        pa.array(draw.below(10) == 0),
    ]
    typed = [column.cast(field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(typed, schema=SCHEMA)


def scattered(numbers: Numbers, seed: int) -> Numbers:
    """Compute a pseudo-random number below 2^31 for each (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        bits = numbers.astype(np.uint64) + np.uint64(seed + 1) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (bits >> np.uint64(33)).astype(np.int64)


class _Draw:
    """Draws the values of one column after another; the same rows get the same values."""

    def __init__(self, numbers: Numbers, version: int) -> None:
        self._numbers, self._seed = numbers, version << 16

    def below(self, limit: int) -> Numbers:
        self._seed += 1
        drawn: Numbers = scattered(self._numbers, self._seed) % limit
        return drawn

    def one_of(self, texts: Sequence[str]) -> pa.Array:
        return _chosen(texts, self.below(len(texts)))


def _chosen(texts: Sequence[str], places: Numbers) -> pa.Array:
    return pa.array(texts).take(pa.array(places))


def _digits(numbers: Numbers, width: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")


def decimals(unscaled: Numbers, kind: pa.Decimal128Type) -> pa.Array:
    """Build 16-byte decimals from non-negative numbers, which are the lower eight bytes."""
    halves = np.zeros((len(unscaled), 2), np.int64)
    halves[:, 0] = unscaled
    return pa.Array.from_buffers(kind, len(unscaled), [None, pa.py_buffer(halves)])
