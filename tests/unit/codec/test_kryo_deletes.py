"""The Java objects in delete blocks of old releases are read, or refused by name."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from string import ascii_letters

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.kryo_deletes import decode_keys, decode_records
from lakemark.errors import CorruptData, HudiError, Unsupported
from tests.depth import examples
from tests.unit.codec.kryo_output import Float, KryoOutput, Long, Ordering
from tests.unit.log.blocks import mutations

#: ``SerializationUtils.serialize`` of Apache Hudi 1.2.0 for arrays of deletes (``JAVA_RECORDS``).
GOLDEN = Path(__file__).parent / "golden"

JAVA_RECORDS: list[tuple[str, str, Ordering]] = [
    ("k1", "p", 0),
    ("k2", "p", 5),
    ("k3", "q", Long(-(2**62))),
    ("é€😀", "q" * 70, Long(2**63 - 1)),
    ("x", "", 1.5),
    ("k4", "p", Float(-2.5)),
    ("k5", "p", "text"),
    ("k6", "p", Decimal("-12.34")),
    ("k7", "p", True),
    ("k8", "p", date(2026, 1, 2)),
]

STRINGS = st.one_of(
    st.none(),
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.text(ascii_letters, min_size=60, max_size=70),
)
KEYS = st.tuples(STRINGS, STRINGS)
ORDERING: st.SearchStrategy[Ordering] = st.one_of(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Long),
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False).map(Float),
    st.booleans(),
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.decimals(-(10**12), 10**12, places=3),
    st.dates(),
)


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(KEYS, max_size=8), st.booleans())
def test_keys_of_block_version_1_come_back_as_unconditional_deletes(
    keys: list[tuple[str | None, str | None]], shares_paths: bool
) -> None:
    read = decode_keys(KryoOutput(shares_paths).keys(keys), "x.log")
    found = zip(read.record_keys.to_pylist(), read.partition_paths.to_pylist(), strict=True)
    assert list(found) == keys
    assert read.ordering_as([pa.int64()])[1].all()


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(st.tuples(KEYS, ORDERING), max_size=8), st.booleans())
def test_records_of_block_version_2_come_back(
    records: list[tuple[tuple[str | None, str | None], Ordering]], shares_paths: bool
) -> None:
    flat = [(*key, ordering) for key, ordering in records]
    read = decode_records(KryoOutput(shares_paths).records(flat), "x.log")
    found = zip(read.record_keys.to_pylist(), read.partition_paths.to_pylist(), strict=True)
    assert list(found) == [key for key, _ in records]
    assert _orderings(read.ordering[0].values, len(flat)) == [_plain(o) for _, o in records]
    assert read.commit_time.tolist() == [
        o is not True and o is not False and o == 0 and isinstance(o, int) for _, o in records
    ]


@pytest.mark.parametrize("column", [pa.int64(), pa.string(), pa.float64(), pa.decimal128(12, 2)])
def test_only_ordering_values_of_the_class_of_the_column_are_compared(column: pa.DataType) -> None:
    of_class: dict[pa.DataType, Ordering] = {
        pa.int64(): Long(7),
        pa.string(): "7",
        pa.float64(): 7.0,
        pa.decimal128(12, 2): Decimal("7.00"),
    }
    values: list[Ordering] = [*of_class.values(), None, 0]
    written = KryoOutput().records([("k", "p", value) for value in values])
    _, always = decode_records(written, "x.log").ordering_as([column])
    assert np.flatnonzero(~always).tolist() == [list(of_class).index(column)]


def test_bytes_of_java_are_read_and_equal_those_of_the_test() -> None:
    by_java = (GOLDEN / "delete_records.kryo").read_bytes()
    assert KryoOutput().records(JAVA_RECORDS) == by_java
    read = decode_records(by_java, "x.log")
    assert read.record_keys.to_pylist() == [key for key, _, _ in JAVA_RECORDS]
    keys = [(key, path) for key, path, _ in JAVA_RECORDS]
    assert KryoOutput().keys(keys) == (GOLDEN / "hoodie_keys.kryo").read_bytes()


@pytest.mark.refuses("Ordering values of unknown Java classes in delete blocks of version 2 (Kryo)")
def test_ordering_value_of_an_unknown_class_is_refused_by_name() -> None:
    known = KryoOutput().records([("k", "p", date(2026, 1, 2))])
    other = known.replace(b"java.time.LocalDat", b"org.acme.LocalDate"[:18])
    with pytest.raises(Unsupported, match=r"x\.log .*'org\.acme\.LocalDat"):
        decode_records(other, "x.log")


def test_class_that_another_release_numbers_is_refused() -> None:
    written = KryoOutput().records([("k", "p", True)])
    with pytest.raises(Unsupported, match=r"x\.log .*number 40"):
        decode_records(written[:-2] + bytes([42, 1]), "x.log")


@pytest.mark.parametrize("version", [1, 2])
def test_array_of_the_other_class_is_corrupt(version: int) -> None:
    keys, records = KryoOutput().keys([("k", "p")]), KryoOutput().records([("k", "p", 1)])
    with pytest.raises(CorruptData, match=r"HoodieKey|DeleteRecord"):
        decode_keys(records, "x.log") if version == 1 else decode_records(keys, "x.log")


@settings(deadline=None, max_examples=examples(300))
@given(st.data())
def test_damaged_objects_are_read_or_refused(data: st.DataObject) -> None:
    records = KryoOutput().records(JAVA_RECORDS)
    keys = KryoOutput().keys([(key, path) for key, path, _ in JAVA_RECORDS])
    for decode, whole in ((decode_records, records), (decode_keys, keys)):
        try:
            decode(data.draw(mutations(whole)), "x.log")
        except HudiError as error:
            assert isinstance(error, CorruptData | Unsupported)


def _orderings(values: dict[object, pa.Array] | object, count: int) -> list[object]:
    found: list[object] = [None] * count
    assert isinstance(values, dict)
    for column in values.values():
        for at, value in enumerate(column.to_pylist()):
            found[at] = value if value is not None else found[at]
    return found


def _plain(value: Ordering) -> object:
    return value.value if isinstance(value, Long | Float) else value
