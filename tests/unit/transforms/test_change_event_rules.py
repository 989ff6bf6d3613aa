"""Events that lack the partition of a row, or a value of it, are found."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from transforms.change_event_rules import ChangeEventRules

TEXT = "gone"
NONE = np.zeros(1, np.bool_)


@pytest.mark.parametrize(
    ("kind", "value", "is_nothing"),
    [
        (pa.string(), None, True),
        (pa.string(), "", True),
        (pa.string(), "0", False),
        (pa.int32(), 0, True),
        (pa.int64(), 1, False),
        (pa.float64(), 0.0, True),
        (pa.bool_(), False, True),
        (pa.bool_(), True, False),
        (pa.binary(), b"", True),
        (pa.decimal128(10, 2), Decimal(0), True),
        (pa.decimal128(10, 2), Decimal(1), False),
        (pa.date32(), date(1970, 1, 1), True),
        (pa.timestamp("us", "UTC"), datetime(1970, 1, 1, tzinfo=UTC), True),
        (pa.timestamp("us", "UTC"), datetime(1970, 1, 2, tzinfo=UTC), False),
        (pa.list_(pa.int64()), None, True),
        (pa.struct([("a", pa.int64())]), {"a": 0}, False),
    ],
)
def test_delete_with_nothing_but_its_key_is_found(
    kind: pa.DataType, value: object, is_nothing: bool
) -> None:
    rules = ChangeEventRules(
        key_columns=("id.part",), partition_columns=("region",), event_columns=frozenset({"_op"})
    )
    columns = {
        "id": pa.array([{"part": 1}] * 2),
        "region": pa.array([None, None], pa.string()),
        "other": pa.array([value] * 2, kind),
        "_op": pa.array(["d", "u"]),
    }
    found = rules.find_deletes_of_keys(pa.table(columns), np.array([True, False]))
    assert found.tolist() == [is_nothing, False]


@pytest.mark.parametrize(
    ("kind", "value", "fillable"),
    [
        (pa.string(), TEXT, True),
        (pa.binary(), TEXT.encode(), True),
        (pa.list_(pa.string()), ["x", TEXT], False),
        (pa.list_(pa.int64()), list(TEXT.encode()), False),
        (pa.struct([("a", pa.list_(pa.string()))]), {"a": [TEXT]}, False),
    ],
)
def test_value_that_nothing_fills_is_found(
    kind: pa.DataType, value: object, fillable: bool
) -> None:
    rows = pa.table({"c": pa.array([value], kind)})
    filling = ChangeEventRules(unavailable=TEXT, fills_unavailable=True)
    assert ("c" in filling.find_unavailable(rows, (), NONE)) is not fillable
    assert "c" in filling.find_unavailable(rows, (), ~NONE)
    assert "c" in filling.find_unavailable(rows, ("c",), NONE)
    assert "c" in ChangeEventRules(unavailable=TEXT).find_unavailable(rows, (), NONE)
    assert not ChangeEventRules().find_unavailable(rows, (), NONE)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), None),
        (pa.string(), TEXT + "!"),
        (pa.list_(pa.string()), [None, "x"]),
        (pa.list_(pa.int64()), [1, 2, 3, 4]),
        (pa.int64(), 1),
    ],
)
def test_other_values_are_not_found(kind: pa.DataType, value: object) -> None:
    rows = pa.table({"c": pa.array([value], kind)})
    assert not ChangeEventRules(unavailable=TEXT).find_unavailable(rows, ("c",), ~NONE)
