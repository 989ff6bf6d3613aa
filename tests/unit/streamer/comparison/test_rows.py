"""Rows are matched by their keys, whatever the types of the keys are."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from streamer.comparison.comparison import compare_rows
from streamer.comparison.rows import RowComparison


def compare(kind: pa.DataType, old: list[Any], new: list[Any], key: list[str]) -> RowComparison:
    schema = pa.schema([("k", kind)])
    left, right = (pa.table({"k": pa.array(one, kind)}, schema).to_batches() for one in (old, new))
    return compare_rows(left, right, schema, key)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_keys_of_floats_are_matched_as_values_are_compared(kind: pa.DataType) -> None:
    (other_nan,) = struct.unpack("d", struct.pack("Q", 0xFFF8000000000001))
    old, new = [-0.0, math.nan, None, 1.0, 2.0], [0.0, other_nan, None, 1.0, -2.0]
    found = compare(kind, old, new, ["k"])
    assert (found.equal, found.only_old, found.only_new) == (4, 1, 1)


def test_rows_without_a_plain_column_are_compared_as_a_bag() -> None:
    found = compare(pa.list_(pa.int32()), [[1], [2], [2], None], [[2], [1], None, []], [])
    assert (found.equal, found.different) == (3, 1)


def test_failed_side_ends_the_reading_of_the_other_side() -> None:
    schema = pa.schema([("k", pa.int32())])
    most, read = 1_000_000, count()

    def endless() -> Iterator[pa.RecordBatch]:
        while next(read) < most:
            yield pa.record_batch({"k": pa.array([1], pa.int32())})

    def damaged() -> Iterator[pa.RecordBatch]:
        message = "damaged"
        yield from ()
        raise OSError(message)

    with pytest.raises(OSError, match="damaged"):
        compare_rows(damaged(), endless(), schema, ["k"])
    assert next(read) < most
