"""Rows with a value of every type that a Hudi table supports, at its extremes and null."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

_POINT = pa.struct([("x", pa.float64()), ("label", pa.string()), ("seen", pa.list_(pa.date32()))])

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("a_boolean", pa.bool_()),
        ("an_int", pa.int32()),
        ("a_long", pa.int64()),
        ("a_float", pa.float32()),
        ("a_double", pa.float64()),
        ("a_string", pa.string()),
        ("a_binary", pa.binary()),
        ("a_date", pa.date32()),
        ("a_timestamp", pa.timestamp("us", "UTC")),
        ("a_small_decimal", pa.decimal128(9, 2)),
        ("a_decimal", pa.decimal128(18, 6)),
        ("a_large_decimal", pa.decimal128(38, 10)),
        ("a_list", pa.list_(pa.int64())),
        ("a_list_of_lists", pa.list_(pa.list_(pa.string()))),
        ("a_map", pa.map_(pa.string(), pa.decimal128(10, 3))),
        ("a_struct", _POINT),
        ("a_list_of_structs", pa.list_(_POINT)),
        ("a_map_of_structs", pa.map_(pa.string(), _POINT)),
    ]
)

_SOME_POINT = {"x": 0.5, "label": "naïve — 点 😀", "seen": [date(1970, 1, 1), None]}

_ORDINARY = {
    "a_boolean": True,
    "an_int": 7,
    "a_long": 7_000_000_000,
    "a_float": 1.5,
    "a_double": 0.1,
    "a_string": "naïve — 点 😀",
    "a_binary": b"\x00\x80\xff",
    "a_date": date(2026, 11, 21),
    "a_timestamp": datetime(2026, 11, 21, 12, 30, 15, 123_456, tzinfo=UTC),
    "a_small_decimal": Decimal("12.34"),
    "a_decimal": Decimal("-0.000001"),
    "a_large_decimal": Decimal("1234567890.0123456789"),
    "a_list": [1, None, 3],
    "a_list_of_lists": [["a", None], [], None],
    "a_map": [("k", Decimal("1.500")), ("l", None)],
    "a_struct": _SOME_POINT,
    "a_list_of_structs": [_SOME_POINT, None, {"x": None, "label": None, "seen": None}],
    "a_map_of_structs": [("k", _SOME_POINT), ("l", None)],
}

_SMALLEST = {
    "a_boolean": False,
    "an_int": -(2**31),
    "a_long": -(2**63),
    "a_float": float("-inf"),
    "a_double": float("-inf"),
    "a_string": "",
    "a_binary": b"",
    "a_date": date(1, 1, 1),
    "a_timestamp": datetime(1, 1, 1, tzinfo=UTC),
    "a_small_decimal": Decimal("-9999999.99"),
    "a_decimal": Decimal("-999999999999.999999"),
    "a_large_decimal": Decimal("-9999999999999999999999999999.9999999999"),
    "a_list": [],
    "a_list_of_lists": [],
    "a_map": [],
    "a_struct": {"x": float("nan"), "label": "", "seen": []},
    "a_list_of_structs": [],
    "a_map_of_structs": [],
}

_LARGEST = {
    "a_boolean": True,
    "an_int": 2**31 - 1,
    "a_long": 2**63 - 1,
    "a_float": float("nan"),
    "a_double": float("nan"),
    "a_string": "x" * 5000,
    "a_binary": bytes(range(256)) * 8,
    "a_date": date(9999, 12, 31),
    "a_timestamp": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "a_small_decimal": Decimal("9999999.99"),
    "a_decimal": Decimal("999999999999.999999"),
    "a_large_decimal": Decimal("9999999999999999999999999999.9999999999"),
    "a_list": list(range(1000)),
    "a_list_of_lists": [["a"] * 100] * 3,
    "a_map": [(f"k{i:03}", Decimal(i)) for i in range(100)],
    "a_struct": {"x": -0.0, "label": "a", "seen": [date(9999, 12, 31)]},
    "a_list_of_structs": [_SOME_POINT] * 10,
    "a_map_of_structs": [(f"k{i}", _SOME_POINT) for i in range(10)],
}


def rows_of_every_type(ts: int = 1) -> pa.Table:
    """Create four rows: ordinary values, the smallest, the largest, and nulls except the keys."""
    values: dict[str, dict[str, object]] = {
        "ordinary": _ORDINARY,
        "smallest": _SMALLEST,
        "largest": _LARGEST,
        "null": {},
    }
    rows = [{"id": name, "part": "p", "ts": ts, **row} for name, row in values.items()]
    return pa.Table.from_pylist(rows, SCHEMA)
