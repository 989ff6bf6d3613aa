"""Delete blocks equal those of Apache Hudi; the reader finds deletes that Hudi does not compare."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from io import BytesIO

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.avro_container import load_schema
from lakemark.codec.delete_records import decode, encode
from lakemark.codec.ordering_wrappers import Wrapper, wrapper_of
from lakemark.errors import CorruptData, InvalidConfig, InvalidRecords
from tests.depth import examples

KEY, PATH = pa.array(["k1"]), pa.array(["p"])
SCHEMA = fastavro.parse_schema(load_schema("HoodieDeleteRecordList"))
MICROS = 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("ordering", "by_apache"),
    [
        (None, "0400"),
        ([pa.array([5], pa.int32())], "040a"),
        ([pa.array([-300], pa.int32())], "04d704"),
        ([pa.array([MICROS])], "068080f28183898506"),
        ([pa.array([MICROS], pa.timestamp("us", "UTC"))], "068080f28183898506"),
        ([pa.array([date(1970, 1, 6)])], "040a"),
        ([pa.array(["é"])], "0e04c3a9"),
        ([pa.array([Decimal("12.34")])], "120e2bd72a24874000"),
        ([pa.array([Decimal("-0.01")])], "120cf6e7b18d6000"),
        (
            [pa.array([Decimal("123456789012345.123456789012345")])],
            "121a018ee90ff6c371e7c1d1605f79",
        ),
        ([pa.array([1.5])], "0a000000000000f83f"),
        ([pa.array([-2.5], pa.float32())], "08000020c0"),
        ([pa.array([True])], "0201"),
        ([pa.array([7]), pa.array(["x"])], "180204060e0e027800"),
        (
            [pa.array([1], pa.int32()), pa.array([Decimal("1.5")]), pa.array([2.0])],
            "1802060402120e05543df729c0000a000000000000004000",
        ),
    ],
)
def test_a_record_is_that_of_apache(ordering: list[pa.Array] | None, by_apache: str) -> None:
    """The bytes are from ``HoodieDeleteBlock`` for ``DeleteRecord.create("k1", "p", value)``."""
    body = encode(KEY, PATH, ordering)
    assert body.hex() == "0202046b31020270" + by_apache + "00"
    read = decode(body, "x")
    types = [column.type for column in ordering or []]
    values, unconditional = read.ordering_as(types)
    assert values == [column.cast(kind) for column, kind in zip(ordering or [], types, strict=True)]
    assert unconditional.tolist() == [ordering is None]


def test_several_records_are_those_of_apache() -> None:
    body = encode(
        pa.array(["k1", "k2", "ключ"]),
        pa.array(["p", "", "p/q"]),
        [pa.array([5, None, -1], pa.int64())],
        commit_time=np.array([False, True, False]),
    )
    by_apache = "0602046b31020270060a02046b32020004000210d0bad0bbd18ed1870206702f71060100"
    assert body.hex() == by_apache
    assert encode(KEY[:0], PATH[:0], None) == b"\x00"


def test_a_null_and_a_zero_integer_win_against_every_value() -> None:
    keys = pa.array(["a", "b", "c"])
    for ordering in (pa.array([None, 0, 3], pa.int32()), pa.array([None, 0, 3], pa.date32())):
        read = decode(encode(keys, keys, [ordering]), "x")
        assert read.commit_time.tolist() == [True, True, False]
    longs = decode(encode(keys, keys, [pa.array([None, 0, 3])]), "x")
    assert longs.commit_time.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("written", "column"),
    [
        (pa.array([5], pa.int32()), pa.int64()),
        (pa.array([5]), pa.int32()),
        (pa.array(["5"]), pa.int64()),
        (pa.array([5.0]), pa.float32()),
    ],
)
def test_a_value_of_another_class_is_not_compared(written: pa.Array, column: pa.DataType) -> None:
    read = decode(encode(KEY, PATH, [written]), "x")
    values, unconditional = read.ordering_as([column])
    assert not read.commit_time.any()
    assert unconditional.all() and values[0].null_count == 1


def test_one_value_is_not_compared_with_several() -> None:
    one, two = pa.array([5]), [pa.array([5]), pa.array([6])]
    assert decode(encode(KEY, PATH, two), "x").ordering_as([pa.int64()])[1].all()
    assert decode(encode(KEY, PATH, [one]), "x").ordering_as([pa.int64(), pa.int64()])[1].all()
    values, unconditional = decode(encode(KEY, PATH, two), "x").ordering_as([pa.int64()] * 2)
    assert values == two and not unconditional.any()


@pytest.mark.parametrize(
    ("branch", "value", "wrapper"),
    [
        ("DateWrapper", 5, Wrapper.DATE),
        ("TimestampMicrosWrapper", MICROS, Wrapper.TIMESTAMP_MICROS),
        ("BytesWrapper", b"b", Wrapper.BYTES),
    ],
)
def test_wrappers_that_only_others_write_are_seen(
    branch: str, value: object, wrapper: Wrapper
) -> None:
    wrapped = (f"org.apache.hudi.avro.model.{branch}", {"value": value})
    read = decode(_written_by_avro([("k", None, wrapped), (None, "p", None)]), "x")
    assert read.ordering[0].wrappers.tolist() == [wrapper, Wrapper.NULL]
    assert read.record_keys.to_pylist() == ["k", None]
    assert read.partition_paths.to_pylist() == [None, "p"]
    assert read.commit_time.tolist() == [False, True]
    assert read.ordering_as([pa.timestamp("us", "UTC")])[1].all()


ORDERINGS = st.sampled_from(
    [pa.int32(), pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.decimal128(20, 5)]
)
VALUES: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.string(): st.text(max_size=4),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.decimal128(20, 5): st.integers(-(10**20) + 1, 10**20 - 1).map(
        lambda n: Decimal(n).scaleb(-5)
    ),
}


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_an_independent_codec_reads_the_same_records(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 6))
    keys = data.draw(st.lists(st.none() | st.text(max_size=5), min_size=count, max_size=count))
    types = data.draw(st.lists(ORDERINGS, max_size=3))
    columns = [
        pa.array(data.draw(st.lists(VALUES[t], min_size=count, max_size=count)), t) for t in types
    ]
    commit_time = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool)
    array = pa.array(keys, pa.string())
    body = encode(array, array, columns or None, commit_time)

    wrapped = [
        _wrapped([c[row].as_py() for c in columns], types, commit_time[row]) for row in range(count)
    ]
    assert body == _written_by_avro(list(zip(keys, keys, wrapped, strict=True)))

    read = decode(body, "x")
    assert read.record_keys == array
    values, unconditional = read.ordering_as(types)
    ordered = pa.array(~unconditional)
    assert [v.filter(ordered) for v in values] == [c.filter(ordered) for c in columns]


def _wrapped(row: Sequence[object], types: Sequence[pa.DataType], commit_time: bool) -> object:
    namespace = "org.apache.hudi.avro.model."
    if commit_time or not row:
        return (f"{namespace}IntWrapper", {"value": 0})
    names = [wrapper_of(kind).name.title() for kind in types]
    items = [
        (f"{namespace}{name}Wrapper", {"value": value})
        for name, value in zip(names, row, strict=True)
    ]
    return items[0] if len(items) == 1 else (f"{namespace}ArrayWrapper", {"wrappedValues": items})


def _written_by_avro(records: Sequence[tuple[str | None, str | None, object]]) -> bytes:
    stream = BytesIO()
    fields = ("recordKey", "partitionPath", "orderingVal")
    listed = [dict(zip(fields, record, strict=True)) for record in records]
    fastavro.schemaless_writer(stream, SCHEMA, {"deleteRecordList": listed})
    return stream.getvalue()


@pytest.mark.parametrize("value", ["1e-16", "1e15"])
def test_a_decimal_that_hudi_cannot_wrap_is_refused(value: str) -> None:
    column = pa.array([Decimal(value)]).cast(pa.decimal128(38, 16))
    with pytest.raises(InvalidRecords, match="decimal"):
        encode(KEY, PATH, [column])


def test_a_column_without_order_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="list"):
        encode(KEY, PATH, [pa.array([[1]])])


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_no_damaged_block_crashes_the_reader(data: st.DataObject) -> None:
    keys = pa.array(["k1", "ключ", "k3"])
    columns = [pa.array([1, 2, 3]), pa.array(["a", "b", None]), pa.array([Decimal("1.5")] * 3)]
    whole = encode(keys, keys, columns[: data.draw(st.integers(0, 3))])
    at = data.draw(st.integers(0, len(whole)))
    damaged = whole[:at] + data.draw(st.binary(max_size=5)) + whole[at + data.draw(_CUT) :]
    try:
        read = decode(damaged, "a.log")
    except CorruptData as error:
        assert error.path == "a.log"
    else:
        assert len(read.commit_time) == len(read.record_keys)


_CUT = st.integers(0, 8)
