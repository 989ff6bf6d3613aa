"""Two tables are compared, of which one was changed in known places."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.comparison.comparison import ComparisonRules, compare_rows
from tests.depth import examples

_STRUCT = pa.struct([("city", pa.string()), ("codes", pa.list_(pa.int32()))])

#: For each type, values of which no two are equal.
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [None, 0, -1, 2**53, 2**53 + 1],
    pa.float64(): [None, math.nan, 0.0, 0.1, math.inf],
    pa.string(): [None, "", "null", "a", "ä"],
    pa.binary(): [None, b"", b"\xff", b"a"],
    pa.bool_(): [None, True, False],
    pa.decimal128(20, 4): [None, Decimal("0.0000"), Decimal("1.2000"), Decimal("-1.2000")],
    pa.date32(): [None, date(1970, 1, 1), date(2026, 5, 1)],
    pa.timestamp("us", "UTC"): [
        None,
        datetime(2026, 5, 1, tzinfo=UTC),
        datetime.fromtimestamp(0, UTC),
    ],
    pa.list_(pa.string()): [None, [], [None], [""], ["a", "b"], ["b", "a"]],
    pa.map_(pa.string(), pa.float64()): [None, [], [("a", None)], [("a", math.nan), ("b", 1.0)]],
    _STRUCT: [
        None,
        {"city": None, "codes": None},
        {"city": None, "codes": []},
        {"city": "", "codes": [1, None]},
        {"city": "a", "codes": [1, 2]},
    ],
    pa.list_(_STRUCT): [
        None,
        [],
        [None],
        [{"city": "a", "codes": [3]}, {"city": "b", "codes": []}],
    ],
}
KEYS: dict[pa.DataType, list[Any]] = {
    one: values for one, values in VALUES.items() if not pa.types.is_nested(one)
}


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.Schema, list[str], list[dict[str, Any]]]:
    """Draw columns, the names of the key, and rows with different keys."""
    key_types = draw(st.lists(st.sampled_from([*KEYS]), min_size=1, max_size=3))
    types = draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=4))
    key = [f"k{n}" for n in range(len(key_types))]
    schema = pa.schema(
        [*zip(key, key_types, strict=True), *((f"c{n}", one) for n, one in enumerate(types))]
    )
    one_key = st.tuples(*(st.sampled_from(range(len(KEYS[one]))) for one in key_types))
    chosen = draw(st.lists(one_key, unique=True, max_size=20))
    rows = [
        {
            **{n: KEYS[t][at] for n, t, at in zip(key, key_types, places, strict=True)},
            **{f"c{n}": draw(st.sampled_from(VALUES[one])) for n, one in enumerate(types)},
        }
        for places in chosen
    ]
    return schema, key, rows


def batches(rows: list[dict[str, Any]], schema: pa.Schema, size: int) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = pa.Table.from_pylist(rows, schema).to_batches(size)
    return found


@settings(max_examples=examples(150), deadline=None)
@given(case=cases(), data=st.data())
def test_planted_differences_are_counted_and_named(
    case: tuple[pa.Schema, list[str], list[dict[str, Any]]], data: st.DataObject
) -> None:
    schema, key, rows = case
    kinds = st.sampled_from(("same", "only_old", "only_new", "changed"))
    changed: dict[str, int] = {}
    old, new, counts = [], [], {"same": 0, "only_old": 0, "only_new": 0, "changed": 0}
    for row in rows:
        kind = data.draw(kinds)
        counts[kind] += 1
        other = dict(row)
        if kind == "changed":
            name = data.draw(st.sampled_from([one for one in schema.names if one not in key]))
            choices = VALUES[schema.field(name).type]
            at = next(n for n, one in enumerate(choices) if one is row[name])
            other[name] = data.draw(st.sampled_from(choices[:at] + choices[at + 1 :]))
            changed[name] = changed.get(name, 0) + 1
        old += [row] if kind != "only_new" else []
        new += [other] if kind != "only_old" else []
    memory_bytes = data.draw(st.sampled_from((0, 1 << 20)))  # 0: each batch is written to the disk
    found = compare_rows(
        batches(old, schema, 3),
        batches(data.draw(st.permutations(new)), schema, 4),
        schema,
        key,
        ComparisonRules(memory_bytes=memory_bytes, most_examples=2),
    )
    assert (found.equal, found.only_old) == (counts["same"], counts["only_old"])
    assert (found.only_new, found.different) == (counts["only_new"], counts["changed"])
    assert found.by_column == changed
    assert found.is_equal == (counts["same"] == len(rows))
    assert len(found.examples_different) == min(2, counts["changed"])
    assert all(set(one.values) <= set(changed) for one in found.examples_different)


@settings(max_examples=examples(100), deadline=None)
@given(case=cases(), data=st.data())
def test_rows_with_repeated_keys_are_compared_as_a_bag(
    case: tuple[pa.Schema, list[str], list[dict[str, Any]]], data: st.DataObject
) -> None:
    schema, key, rows = case
    repeated = [row for row in rows for _ in range(data.draw(st.integers(1, 3)))]
    dropped = data.draw(st.integers(0, len(repeated)))
    kept = data.draw(st.permutations(repeated))[dropped:]
    found = compare_rows(batches(repeated, schema, 5), batches(kept, schema, 2), schema, key)
    assert (found.equal, found.only_old) == (len(kept), dropped)
    assert (found.only_new, found.different) == (0, 0)
