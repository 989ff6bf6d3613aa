"""Avro containers equal those of Apache Hudi, and a damaged one raises only a typed error."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.avro_bounds import check_bounded
from lakemark.codec.avro_container import decode, encode, load_schema
from lakemark.errors import CorruptData
from tests.depth import examples

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.avro"))
COMMIT = next(path for path in GOLDEN if path.stem == "HoodieCommitMetadata")
SYNC_BYTES = 16


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_a_file_of_apaches_timeline_is_written_the_same(golden: Path) -> None:
    theirs = golden.read_bytes()
    ours = encode(golden.stem, decode(theirs, golden.name))
    # the marker is random in Java, a digest here
    assert ours == theirs.replace(theirs[-SYNC_BYTES:], ours[-SYNC_BYTES:])


def test_two_attempts_write_the_same_bytes_and_other_content_other_markers() -> None:
    record: dict[str, object] = {"partitionToWriteStats": {}, "extraMetadata": {"a": "1"}}
    first = encode("HoodieCommitMetadata", record)
    assert encode("HoodieCommitMetadata", dict(record)) == first
    other = encode("HoodieCommitMetadata", record | {"extraMetadata": {"a": "2"}})
    assert other[-SYNC_BYTES:] != first[-SYNC_BYTES:]


def test_fields_left_out_get_the_defaults_of_the_schema() -> None:
    read = decode(encode("HoodieCommitMetadata", {}), "x")
    assert read == {
        "partitionToWriteStats": None,
        "compacted": None,
        "extraMetadata": None,
        "version": 1,
        "operationType": None,
    }


@pytest.mark.parametrize("record", [{"unknown": 1}, {"compacted": "yes"}])
def test_a_record_outside_the_schema_is_not_written(record: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"unknown|compacted|yes"):
        encode("HoodieCommitMetadata", record)


def test_java_gets_its_strings() -> None:
    assert '"avro.java.string": "String"' in str(load_schema("HoodieCleanMetadata")).replace(
        "'", '"'
    )


@settings(max_examples=examples(120), deadline=None)
@given(st.data())
def test_no_damaged_container_crashes_the_reader(data: st.DataObject) -> None:
    whole = COMMIT.read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    damaged = whole[:at] + data.draw(st.binary(max_size=6)) + whole[at + data.draw(_CUT) :]
    try:
        assert isinstance(decode(damaged, "a.commit"), dict)
    except CorruptData as error:
        assert error.path == "a.commit"


_CUT = st.integers(0, 20)


@pytest.mark.parametrize("count", [0, 2])
def test_a_container_of_another_number_of_records_is_corrupt(count: int) -> None:
    stream = BytesIO()
    schema = fastavro.parse_schema(load_schema("HoodieCommitMetadata"))
    fastavro.writer(stream, schema, [{}] * count)
    with pytest.raises(CorruptData, match="one record"):
        decode(stream.getvalue(), "a.commit")


@pytest.mark.parametrize("data", [b"", b"Obj\x01", b"{}"])
def test_bytes_that_are_not_a_container_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptData):
        decode(data, "a.commit")


def test_items_of_no_bytes_are_refused_before_they_fill_the_memory() -> None:
    stat = {"fileId": "g", "numWrites": 2**40}
    whole = encode("HoodieCommitMetadata", {"partitionToWriteStats": {"p": [stat] * 2}})
    fields_of_items = whole.index(b'"fields"', whole.index(b"HoodieWriteStat"))
    damaged = bytearray(whole)
    damaged[fields_of_items + 1] ^= 1  # no such key: a record of nothing, 2**40 of them
    with pytest.raises(CorruptData, match="values with bytes"):
        decode(bytes(damaged), "c")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "r", "fields": []},
        {"type": "record", "name": "r"},
        {"type": "record", "name": "r", "fields": [{"name": "n", "type": "null"}]},
        {"type": "record", "name": "r", "fields": [{"name": "r", "type": "r"}]},
        {"type": "record", "name": "r", "fields": [{"name": "r", "type": ["null", "n.r"]}]},
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}},
        {"type": "map", "values": {"type": "array", "items": "null"}},
        "null",
    ],
)
def test_schemas_of_values_without_end_are_refused(schema: object) -> None:
    for nested in (schema, {"type": "array", "items": schema}):
        with pytest.raises(CorruptData, match=r"with bytes|in itself"):
            check_bounded(nested, "c")


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_the_schemas_of_the_timeline_are_bounded(golden: Path) -> None:
    check_bounded(load_schema(golden.stem), golden.name)


def test_a_schema_too_deep_to_look_at_is_refused() -> None:
    schema: object = "long"
    for _ in range(100_000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(CorruptData, match="depth"):
        check_bounded(schema, "c")
