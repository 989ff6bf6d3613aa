"""Strategies for schemas that a Hudi table supports, and for their rows."""

from __future__ import annotations

from datetime import UTC
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

NAMES = st.from_regex(r"\A[a-zA-Z_][a-zA-Z0-9_]{0,5}\Z") | st.sampled_from(["größe", "ключ"])

SCALARS = st.sampled_from(
    [
        pa.bool_(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
    ]
) | st.builds(
    lambda precision, scale: pa.decimal128(precision, min(precision, scale)),
    st.integers(1, 38),
    st.integers(0, 38),
)


def fields(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    """Draw one to four fields with different names."""
    field = st.builds(pa.field, NAMES, types, nullable=st.booleans())
    return st.lists(field, min_size=1, max_size=4, unique_by=lambda f: f.name)


def _nested(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    nullable = st.booleans()
    return (
        st.builds(lambda t, n: pa.list_(pa.field("element", t, nullable=n)), types, nullable)
        | st.builds(
            lambda t, n: pa.map_(pa.string(), pa.field("value", t, nullable=n)), types, nullable
        )
        | fields(types).map(pa.struct)
    )


TYPES: st.SearchStrategy[pa.DataType] = st.recursive(SCALARS, _nested, max_leaves=4)
SCHEMAS = fields(TYPES).map(pa.schema)


def values(field: pa.Field) -> st.SearchStrategy[object]:
    """Draw Python values of a field, also None if the field is nullable."""
    value = _values(field.type)
    return st.none() | value if field.nullable else value


def rows(schema: pa.Schema, max_size: int = 6) -> st.SearchStrategy[pa.Table]:
    """Draw tables of the schema, also slices of tables, whose buffers have an offset."""
    row = st.fixed_dictionaries({field.name: values(field) for field in schema})
    tables = st.lists(row, max_size=max_size).map(lambda r: pa.Table.from_pylist(r, schema))
    return tables.flatmap(lambda t: st.integers(0, t.num_rows).map(t.slice))


def _values(kind: pa.DataType) -> st.SearchStrategy[object]:
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: values(field) for field in kind.fields})
    if pa.types.is_list(kind):
        return st.lists(values(kind.value_field), max_size=4)
    if pa.types.is_map(kind):
        return st.dictionaries(st.text(max_size=4), values(kind.item_field), max_size=3).map(
            lambda entries: list(entries.items())
        )
    if pa.types.is_decimal(kind):
        largest = 10**kind.precision - 1
        return st.integers(-largest, largest).map(lambda n: _decimal(n, kind.scale))
    return _SCALAR_VALUES[kind]


def _decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


_SCALAR_VALUES: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=6),
    pa.binary(): st.binary(max_size=6),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(UTC)),
    pa.timestamp("us"): st.datetimes(),
}
