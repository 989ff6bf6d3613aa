"""Schema evolution by records: types keep all their values, and rows equal their records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from itertools import pairwise, product
from uuid import uuid4

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakemark.schema.evolution import Proposal, ValueKind, common_type, evolve
from lakemark.storage import StorageLocation
from sinks.hudi.batch_columns import SchemaRefused
from tests.depth import examples
from tests.json_stream import JsonStream, present
from transforms.decode.schema_policy import SchemaPolicy, UnknownFields, WiderValues

# --- types

LEAVES = st.sampled_from(
    [
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.bool_(),
        pa.date32(),
        pa.decimal128(9, 2),
    ]
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda t: pa.list_(pa.field("element", t))),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(
            lambda fields: pa.struct(list(fields.items()))
        ),
    ),
    max_leaves=4,
)
PATHS = st.lists(st.sampled_from(["a", "b", "c", "n", ""]), min_size=1, max_size=3).map(
    lambda names: (names[0] or "a", *names[1:])
)
PROPOSALS = st.frozensets(st.tuples(PATHS, st.sampled_from(ValueKind)), max_size=8)
SCHEMAS = st.dictionaries(st.sampled_from("abcn"), TYPES, min_size=1).map(
    lambda fields: pa.schema(list(fields.items()))
)


def sorted_fields(data_type: pa.DataType | None) -> pa.DataType | None:
    """Sort the fields of a type, so that types do not differ in their order."""
    if data_type is None:
        return None
    if pa.types.is_struct(data_type):
        fields = sorted(data_type, key=lambda field: field.name)
        return pa.struct([f.with_type(sorted_fields(f.type)) for f in fields])
    if pa.types.is_list(data_type):
        element = data_type.value_field
        return pa.list_(element.with_type(sorted_fields(element.type)))
    return data_type


#: Values of each type that a cast to another type is likely to change.
EXTREMES: dict[pa.DataType, list[object]] = {
    pa.int32(): [-(2**31), -1, 0, 16_777_217, 2**31 - 1],
    pa.int64(): [-(2**63), 0, 2**53 + 1, 2**63 - 1],
    pa.float32(): [0.5, -(2.0**127)],
    pa.float64(): [0.1, 1e300],
    pa.string(): ["", "1"],
    pa.bool_(): [True, False],
    pa.date32(): [date(1, 1, 1), date(9999, 12, 31)],
    pa.decimal128(9, 2): [Decimal("9999999.99"), Decimal("-0.01")],
}


#: The common types of two different types; no other pair has one.
WIDER_OF_TWO = {
    frozenset({pa.int32(), pa.int64()}): pa.int64(),
    frozenset({pa.int32(), pa.float32()}): pa.float64(),
    frozenset({pa.int32(), pa.float64()}): pa.float64(),
    frozenset({pa.float32(), pa.float64()}): pa.float64(),
}


def expected_common(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    """Return the expected result of ``common_type``, except for the order of fields."""
    if one is None or other is None or one == other:
        return one if other is None else other
    if pa.types.is_list(one) and pa.types.is_list(other):
        element = expected_common(one.value_type, other.value_type)
        return None if element is None else pa.list_(pa.field("element", element))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        left, right = ({field.name: field.type for field in each} for each in (one, other))
        names = sorted({*left, *right})
        types = [expected_common(left.get(name), right.get(name)) for name in names]
        found = [(n, t) for n, t in zip(names, types, strict=True) if t is not None]
        return pa.struct(found) if len(found) == len(names) else None
    return WIDER_OF_TWO.get(frozenset({one, other}))


def holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Whether ``wide`` has every value of ``narrow``; fields of structs may be missing."""
    if pa.types.is_struct(wide) and pa.types.is_struct(narrow):
        held = {field.name: field.type for field in wide}
        return all(f.name in held and holds(held[f.name], f.type) for f in narrow)
    if pa.types.is_list(wide) and pa.types.is_list(narrow):
        return holds(wide.value_type, narrow.value_type)
    return narrow in EXTREMES and wide in EXTREMES and keeps_values(wide, narrow)


def keeps_values(wide: pa.DataType, narrow: pa.DataType) -> bool:
    values = pa.array(EXTREMES[narrow], narrow)
    try:
        widened = values.cast(wide).to_pylist()
    except (pa.ArrowException, OverflowError, ValueError):  # such as a date after the year 9999
        return False
    before = values.to_pylist()
    return widened == before and [type(v) for v in widened] in (
        [type(v) for v in before],
        [float for _ in before if is_number(narrow)],
    )


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def common(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    return None if one is None or other is None else sorted_fields(common_type(one, other))


def test_common_type_of_two_leaf_types_is_that_of_the_table() -> None:
    for one, other in product(EXTREMES, EXTREMES):
        assert common_type(one, other) == expected_common(one, other), f"{one} and {other}"


@given(TYPES, TYPES, TYPES)
def test_common_type_does_not_depend_on_the_order_of_types(
    one: pa.DataType, other: pa.DataType, third: pa.DataType
) -> None:
    assert common(one, one) == sorted_fields(one)
    assert common(one, other) == sorted_fields(expected_common(one, other))
    assert common(one, other) == common(other, one)
    assert common(common(one, other), third) == common(one, common(other, third))
    both = common_type(one, other)
    if both is not None:
        assert holds(both, one) and holds(both, other)
    elif one in EXTREMES and other in EXTREMES:
        assert not any(holds(wide, one) and holds(wide, other) for wide in EXTREMES)


@given(SCHEMAS, PROPOSALS, PROPOSALS)
def test_evolved_schema_keeps_all_values_and_adds_only_nullable_columns(
    schema: pa.Schema,
    one: Proposal,
    other: Proposal,
) -> None:
    after = evolve(schema, one | other)
    assert after.names[: len(schema)] == schema.names
    for field in schema:
        assert holds(after.field(field.name).type, field.type)
    assert all(after.field(name).nullable for name in after.names[len(schema) :])
    assert evolve(after, one | other) == after
    assert evolve(schema, frozenset()) == schema


# --- records

COLUMNS = {
    "id": "string",
    "ts": "bigint",
    "n": "int",
    "f": "float",
    "h": "struct<q:int,s:string>",
    "l": "array<int>",
}
#: Numbers that a ``float`` or a ``double`` represents exactly, unless they exceed its range.
NUMBERS = st.sampled_from([0, 5, 2**31, 2**53, 2**60, 0.5, 1e300])
SCALARS = st.one_of(NUMBERS, st.none(), st.booleans(), st.sampled_from(["", "text"]))
MEMBERS = st.fixed_dictionaries({}, optional={"q": SCALARS, "r": SCALARS, "s": SCALARS})
VALUES = st.one_of(SCALARS, st.lists(NUMBERS, max_size=2), MEMBERS, st.lists(MEMBERS, max_size=2))
FIELDS: Mapping[str, st.SearchStrategy[object]] = {
    "n": NUMBERS | VALUES,
    "f": NUMBERS | VALUES,
    "h": MEMBERS | VALUES,
    "l": st.lists(NUMBERS, max_size=2) | VALUES,
    "x": VALUES,
    "y": NUMBERS,
}


@st.composite
def records(draw: st.DrawFn) -> dict[str, object]:
    """Draw a record without its time, with fields in any order."""
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), unique=True, max_size=4))
    fields = {name: draw(FIELDS[name]) for name in names}
    return {**fields, "id": draw(st.sampled_from("abcd"))}


BATCHES = st.lists(st.lists(records(), min_size=1, max_size=4), min_size=1, max_size=3)
UNKNOWN: st.SearchStrategy[UnknownFields] = st.sampled_from(
    ["ignore", "rescue", "evolve", "reject", "fail"]
)
WIDER: st.SearchStrategy[WiderValues] = st.sampled_from(["reject", "evolve", "rescue", "fail"])


@settings(max_examples=examples(40), deadline=None)
@given(BATCHES, UNKNOWN, WIDER, st.booleans())
@example([[{"f": 0, "x": [{}], "id": "a"}]], "evolve", "reject", False)
def test_every_record_becomes_an_equal_row_or_a_reject(
    batches: list[list[dict[str, object]]],
    unknown: UnknownFields,
    wider: WiderValues,
    compacts: bool,
) -> None:
    rescue_column = "_rescued" if "rescue" in (unknown, wider) else None
    location = StorageLocation(f"memory://{uuid4().hex}/orders")
    policy = SchemaPolicy(unknown, wider)
    stream = JsonStream(location, policy, COLUMNS, rescue_column)
    expected: dict[str, dict[str, object]] = {}
    schemas = [stream.rows.schema]
    for batch in batches:
        first = stream.offset
        timed = [{**record, "ts": first + n} for n, record in enumerate(batch)]
        try:
            result = stream.write(timed)
        except SchemaRefused:
            assert "fail" in (unknown, wider)
            assert first == stream.offset
        else:
            rejected = {o for o in stream.reasons() if o >= first}
            assert result.records == len(batch)
            assert result.rejected == len(rejected)
            for offset, record in enumerate(timed, first):
                if offset not in rejected:
                    expected[str(record["id"])] = expected_fields(record, unknown)
                else:
                    assert not fits(record), (
                        "a record that fits the declared columns is never rejected"
                    )
        schemas.append(stream.rows.schema)
        if compacts:
            stream.compact()
        assert {key: unrescued(row) for key, row in stream.read().items()} == expected
    for before, after in pairwise(schemas):
        assert after.names[: len(before)] == before.names
        assert all(holds(after.field(field.name).type, field.type) for field in before)
    if unknown != "evolve":
        assert len(schemas[-1]) == len(schemas[0])
    if wider != "evolve":
        assert all(schemas[-1].field(f.name).type.id == f.type.id for f in schemas[0])


def fits(record: Mapping[str, object]) -> bool:
    """Whether a record fits the declared columns, whatever the settings are."""
    h, n, f, numbers = (record.get(name) for name in "hnfl")
    return (
        not {"x", "y"} & set(record)
        and (n is None or (type(n) is int and n < 2**31))
        and (f is None or (type(f) in (int, float) and f != 1e300))
        and (h is None)
        and (numbers is None or _are_ints(numbers))
    )


def _are_ints(values: object) -> bool:
    return isinstance(values, list) and all(type(v) is int and v < 2**31 for v in values)


def expected_fields(record: Mapping[str, object], unknown: UnknownFields) -> dict[str, object]:
    """Return the fields that a row must have: all of the record, or the declared ones."""
    fields = dict(record)
    if unknown == "ignore":
        fields = {name: value for name, value in fields.items() if name in COLUMNS}
        if isinstance(h := fields.get("h"), dict):
            fields["h"] = {name: value for name, value in h.items() if name in ("q", "s")}
    return plain(fields)


def unrescued(row: Mapping[str, object]) -> dict[str, object]:
    """Merge the rescued fields of a row back into it."""
    rescued = row.get("_rescued")
    fields = {name: value for name, value in row.items() if name != "_rescued"}
    return plain(_merged(fields, json.loads(str(rescued)) if rescued else {}))


def _merged(row: Mapping[str, object], rescued: Mapping[str, object]) -> dict[str, object]:
    merged = dict(row)
    for name, value in rescued.items():
        own = merged.get(name)
        if isinstance(own, dict) and isinstance(value, dict):
            merged[name] = _merged(own, value)
        else:
            assert own is None, "a value is in its column, or rescued"
            merged[name] = value
    return merged


def plain(fields: Mapping[str, object]) -> dict[str, object]:
    """Drop nulls and values without content, for which no column is added."""
    kept = {name: _plain(value) for name, value in present(fields).items()}
    return {name: value for name, value in kept.items() if _has_content(value)}


def _has_content(value: object) -> bool:
    """Whether a value has a type: an array has none if all its elements are empty."""
    if isinstance(value, list):
        return any(map(_has_content, value))
    return value != {}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return plain(value)
    return [_plain(element) for element in value] if isinstance(value, list) else value
