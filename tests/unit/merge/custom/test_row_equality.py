from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.merge.custom.row_equality import equal_rows

KINDS = {
    "number": (pa.float64(), st.sampled_from([None, 1.0, 2.0])),
    "list": (pa.list_(pa.int32()), st.none() | st.lists(st.none() | st.integers(1, 2), max_size=2)),
    "struct": (
        pa.struct([("a", pa.string()), ("b", pa.list_(pa.string()))]),
        st.none()
        | st.fixed_dictionaries(
            {
                "a": st.sampled_from([None, "x"]),
                "b": st.none() | st.lists(st.sampled_from("yz"), max_size=2),
            }
        ),
    ),
    "map": (
        pa.map_(pa.string(), pa.int32()),
        st.none() | st.lists(st.tuples(st.sampled_from("pq"), st.integers(1, 2)), max_size=2),
    ),
}
ROW = st.fixed_dictionaries({name: values for name, (_, values) in KINDS.items()})


def table_of(rows: list[dict[str, object]]) -> pa.Table:
    return pa.table(
        {name: pa.array([row[name] for row in rows], kind) for name, (kind, _) in KINDS.items()}
    )


@settings(deadline=None)
@given(pairs=st.lists(ROW.flatmap(lambda row: st.tuples(st.just(row), ROW | st.just(row)))))
def test_rows_are_equal_if_their_values_are(
    pairs: list[tuple[dict[str, object], dict[str, object]]],
) -> None:
    one, other = ([pair[side] for pair in pairs] for side in (0, 1))
    assert equal_rows(table_of(one), table_of(other)).tolist() == [a == b for a, b in pairs]


def test_nan_equals_nan() -> None:
    rows = pa.table({"v": [float("nan"), 1.0]})
    assert equal_rows(rows, rows).tolist() == [True, True]
