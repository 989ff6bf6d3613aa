from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.errors import InvalidConfig
from lakemark.merge.ordering import find_default_ordering, ordering_ranks

_BIG = Decimal(10) ** 25

#: Values in the order of a merge; a null precedes all of them.
_ASCENDING = [
    pa.array([-(2**63), -1, 0, 2**63 - 1], pa.int64()),
    pa.array([-128, 0, 127], pa.int8()),
    pa.array([0, 2**63, 2**64 - 1], pa.uint64()),
    pa.array([-math.inf, -1.5, -0.0, 0.0, 1e-300, math.inf, math.nan], pa.float64()),
    pa.array([-1.5, 0.0, 2.5], pa.float32()),
    pa.array(["", "Z", "a", "ä", "日"], pa.string()),
    pa.array([Decimal("-1.50"), Decimal("0.00"), Decimal("9.99")], pa.decimal128(18, 2)),
    pa.array([-_BIG, Decimal(0), _BIG], pa.decimal128(38, 0)),
    pa.array([date(1969, 12, 31), date(1970, 1, 1), date(2026, 1, 1)], pa.date32()),
    pa.array([datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]),
    pa.array([False, True]),
    pa.array([b"", b"\x00", b"\xff"], pa.binary()),
]


@pytest.mark.parametrize("values", _ASCENDING, ids=lambda v: str(v.type))
def test_ranks_ascend_with_the_values(values: pa.Array) -> None:
    ranks = ordering_ranks(pa.table({"o": values}), ["o"])
    assert list(ranks) == sorted(set(ranks.tolist()))


@pytest.mark.parametrize("values", _ASCENDING, ids=lambda v: str(v.type))
def test_null_ranks_below_every_value(values: pa.Array) -> None:
    chunks = [pa.nulls(1, values.type), pa.nulls(0, values.type), values]
    shifted = pa.table({"o": pa.chunked_array([pa.concat_arrays(chunks).slice(0), *chunks])})
    ranks = ordering_ranks(shifted.slice(1), ["o"]).tolist()
    assert ranks == [*ranks[: len(values)], min(ranks), *ranks[: len(values)]]
    assert min(ranks) < ranks[0]


@pytest.mark.parametrize("precision", [1, 17, 18, 19, 20, 38])
@given(st.data())
def test_decimals_of_any_precision_rank_like_their_values(
    precision: int, data: st.DataObject
) -> None:
    largest = 10**precision - 1
    unscaled = data.draw(st.lists(st.integers(-largest, largest), min_size=2))
    values = [Decimal(number) for number in (largest, -largest, *unscaled)]
    rows = pa.table({"o": pa.array(values, pa.decimal128(precision, 0))})

    ranks = ordering_ranks(rows, ["o"]).tolist()

    distinct = sorted(set(ranks))
    assert [distinct.index(rank) for rank in ranks] == [
        sorted(set(values)).index(v) for v in values
    ]


def test_first_ordering_field_is_most_significant() -> None:
    rows = pa.table({"a": [1, 2, 1, 1], "b": ["z", "a", None, "z"]})
    third, first, second = 2, 0, 1
    ranks = ordering_ranks(rows, ["a", "b"])
    assert ranks[third] < ranks[first] == ranks[3] < ranks[second]


def test_dotted_field_orders_by_a_field_of_a_struct() -> None:
    rows = pa.table({"meta": [{"lsn": 5}, {"lsn": 4}]})
    assert ordering_ranks(rows, ["meta.lsn"]).tolist() == [5, 4]


@pytest.mark.parametrize("field", ["missing", "ts.year", "tags"])
def test_field_without_an_order_is_refused_by_name(field: str) -> None:
    rows = pa.table({"ts": [1], "tags": [["a"]]})
    with pytest.raises(InvalidConfig, match=field):
        ordering_ranks(rows, [field])


def test_integer_zero_and_null_mean_no_ordering_value() -> None:
    def default(values: pa.Array) -> list[bool]:
        flags: list[bool] = find_default_ordering(pa.table({"o": values}), ["o"]).tolist()
        return flags

    assert default(pa.array([0, 1, None], pa.int32())) == [True, False, True]
    assert default(pa.array([0, 1, None], pa.date32())) == [True, False, True]
    assert default(pa.array([0, 1, None], pa.int64())) == [False, False, True]
    assert default(pa.array(["", "0", None])) == [False, False, True]
    both = pa.table({"a": pa.array([0], pa.int32()), "b": pa.array([0], pa.int32())})
    assert find_default_ordering(both, ["a", "b"]).tolist() == [False]
