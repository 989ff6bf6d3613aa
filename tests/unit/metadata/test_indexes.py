"""Lookups in record, secondary and expression indexes use the right shards, and omit deletes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.bloom import BloomFilterBuilder
from lakemark.errors import CorruptData, InvalidConfig
from lakemark.metadata.expressions.expression_index import ExpressionIndex
from lakemark.metadata.index_definition import (
    DEFINITIONS_PATH,
    IndexDefinition,
    define_record_index,
    parse_definitions,
)
from lakemark.metadata.index_keys import (
    bloom_filter_key,
    column_prefix,
    column_stats_key,
)
from lakemark.metadata.record_index import LOCATIONS, RecordIndex
from lakemark.metadata.secondary_index import SecondaryIndex, escape
from lakemark.metadata.shards import shards_of
from tests.depth import examples
from tests.table_services import new_storage
from tests.unit.metadata.metadata_tables import Changes, MadeUpTable, Record, statistics

MILLIS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000) + 7


def location(file_id: str, partition: str = "p", **fields: object) -> Record:
    """Create a payload as Apache Hudi does: both halves of a UUID, and the number after it."""
    number = -1
    if file_id.count("-") == 5:
        file_id, _, text = file_id.rpartition("-")
        number = int(text)
    value = uuid.UUID(file_id).int
    halves = [half - (half >> 63 << 64) for half in (value >> 64, value & (1 << 64) - 1)]
    record = {
        "partitionName": partition,
        "fileIdHighBits": halves[0],
        "fileIdLowBits": halves[1],
        "fileIndex": number,
        "fileId": "",
        "instantTime": MILLIS,
        "fileIdEncoding": 0,
        "position": None,
    }
    return {"type": 5, "recordIndexMetadata": {**record, **fields}}


def sharded(
    table: MadeUpTable,
    prefix: str,
    count: int,
    base: Mapping[str, Record],
    *commits: Changes,
    shard_key: Callable[[str], str] = str,
) -> None:
    """Add one file group for each shard, with the keys of this shard."""

    def of(number: int, changes: Changes) -> dict[str, Record | None]:
        numbers = shards_of(pa.array([shard_key(key) for key in changes], pa.string()), count)
        chosen = zip(changes.items(), numbers.tolist(), strict=True)
        return {key: record for (key, record), shard in chosen if shard == number}

    for number in range(count):
        mine = {key: r for key, r in of(number, base).items() if r is not None}
        table.add(f"{prefix}{number:04d}-0", mine, *(of(number, c) for c in commits))


def test_a_shard_is_javas_hash_of_the_key() -> None:
    """Shards are those of Java, also for the smallest integer, which is its own absolute value."""
    keys = ["polygenelubricants", "k0001", "k0010", "", "ключ", "🜁"]
    hashes = [reduce(lambda h, unit: (31 * h + unit) % 2**32, _units(key), 0) for key in keys]
    assert hashes[0] == 2**31
    signed = [h - (h >> 31 << 32) for h in hashes]
    expected = [8, *(abs(h) % 10 for h in signed[1:])]
    assert shards_of(pa.array(keys), 10).tolist() == expected


def _units(text: str) -> list[int]:
    """Return the UTF-16 code units of a text, which are Java's characters."""
    return [int(unit) for unit in np.frombuffer(text.encode("utf-16-le"), np.uint16)]


@settings(deadline=None, max_examples=examples(20))
@given(st.uuids(), st.integers(0, 99))
def test_a_file_id_is_put_together_again(file_uuid: uuid.UUID, number: int) -> None:
    for file_id in (str(file_uuid), f"{file_uuid}-{number}"):
        table = MadeUpTable("record_index")
        table.add("record-index-0000-0", {"k": location(file_id)})
        (row,) = RecordIndex(table.open()).lookup(pa.array(["k"])).to_pylist()
        assert row["file_id"] == file_id
        assert row["instant_time"] == "20260101000000007"


def test_a_lookup_finds_the_newest_location_of_each_remaining_record() -> None:
    ids = [str(uuid.UUID(int=number)) for number in range(4)]
    table = MadeUpTable("record_index")
    base = {f"k{number}": location(ids[0] + "-0") for number in range(40)}
    moved = {f"k{number}": location(ids[1] + "-0", "q", position=5) for number in range(10)}
    deleted = dict.fromkeys([f"k{number}" for number in range(5, 15)])
    back = {"k14": _raw("some file", ids[2])}
    sharded(table, "record-index-", 4, base, moved, deleted, back)
    index = RecordIndex(table.open())
    keys = [*base, "none", None, "k0"]
    found = index.lookup(pa.array(keys, pa.string()))
    assert found.schema == LOCATIONS
    rows = {row["record_key"]: row for row in found.to_pylist()}
    assert set(rows) == set(base) - set(deleted) | {"k14"}
    assert rows["k0"]["partition_path"] == "q" and rows["k0"]["position"] == 5
    assert rows["k0"]["file_id"] == ids[1] + "-0"
    assert rows["k14"]["file_id"] == "some file"
    assert rows["k39"]["file_id"] == ids[0] + "-0"
    scanned = pa.concat_tables(index.scan()).sort_by("record_key")
    assert scanned == found.sort_by("record_key")
    assert index.lookup(pa.array([], pa.string())).num_rows == 0
    assert not index.is_partitioned


def _raw(file_id: str, filler: str) -> Record:
    return location(filler, fileId=file_id, fileIdEncoding=1)


def test_an_index_by_partition_is_asked_partition_by_partition() -> None:
    """A lookup in a partition searches the shards whose file ids have its escaped path."""
    ids = {path: str(uuid.UUID(int=len(path))) + "-0" for path in ("p", "2026/01")}
    table = MadeUpTable("record_index")
    for path, escaped in (("p", "p"), ("2026/01", "2026%2F01")):
        records = {f"k{number}": location(ids[path], path) for number in range(9)}
        sharded(table, f"record-index-{escaped}-", 3, records)
    definition = IndexDefinition("record_index", options={"isPartitioned": "true"}, version="V2")
    index = RecordIndex(table.open(definition))
    assert index.is_partitioned
    for path, file_id in ids.items():
        found = index.lookup(pa.array(["k1", "k7"]), [path]).to_pylist()
        assert [(row["partition_path"], row["file_id"]) for row in found] == [(path, file_id)] * 2
    assert index.lookup(pa.array(["k1"])).num_rows == 2
    assert index.lookup(pa.array(["k1"]), ["p", "none"]).num_rows == 1
    assert index.lookup(pa.array(["k1"]), ["none"]).num_rows == 0


@pytest.mark.parametrize("fields", [{"instantTime": 2**62}, {"partitionName": None}])
def test_a_location_that_cannot_be_is_corrupt(fields: dict[str, Any]) -> None:
    table = MadeUpTable("record_index")
    table.add("record-index-0000-0", {"k": location(str(uuid.UUID(int=1)), **fields)})
    with pytest.raises(CorruptData):
        RecordIndex(table.open()).lookup(pa.array(["k"]))


def test_a_shard_that_is_missing_is_noticed() -> None:
    table = MadeUpTable("record_index")
    table.add("record-index-0001-0", {})
    with pytest.raises(CorruptData, match="without a gap"):
        RecordIndex(table.open()).lookup(pa.array(["k"]))


TEXT = st.text(st.sampled_from("ab$\\\0é\n"), max_size=4)
SECONDARY = "secondary_index_by_c"


@pytest.mark.parametrize("version", ["V1", "V2", None])
@settings(deadline=None, max_examples=examples(15))
@given(data=st.data())
def test_a_secondary_key_finds_its_records(version: str | None, data: st.DataObject) -> None:
    """A lookup finds the records of a value, whatever characters values and record keys have."""
    pairs = data.draw(st.lists(st.tuples(st.none() | TEXT, TEXT), unique=True, max_size=12))
    deleted = data.draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    table = MadeUpTable(SECONDARY)
    base = {_secondary_key(*pair): _entry(False) for pair in pairs}
    commit = {_secondary_key(*pair): _entry(True) for pair in deleted}
    prefix = "secondary-index-by-c-"
    by_value = {_secondary_key(*pair): escape(pair[0]) + "$" for pair in pairs}
    shard_key = by_value.__getitem__ if version == "V2" else str
    sharded(table, prefix, 3, base, commit, shard_key=shard_key)
    known = IndexDefinition(SECONDARY, "secondary_index", "", ("c",), {}, version or "")
    index = SecondaryIndex(table.open(known if version else None), SECONDARY)
    wanted = data.draw(st.lists(st.none() | TEXT, max_size=3)) + [v for v, _ in pairs[:3]]
    left = [pair for pair in pairs if pair not in deleted]
    found = [(r["secondary_key"], r["record_key"]) for r in index.lookup(wanted).to_pylist()]
    assert sorted(found, key=repr) == sorted((p for p in left if p[0] in wanted), key=repr)
    scanned = [(r["secondary_key"], r["record_key"]) for t in index.scan() for r in t.to_pylist()]
    assert sorted(scanned, key=repr) == sorted(left, key=repr)
    assert index.column == ("c" if version else None)


def _secondary_key(value: str | None, record_key: str) -> str:
    """Construct the key like Apache Hudi's ``SecondaryIndexKeyUtils``."""
    parts = [
        "\0" if text is None else "".join("\\" * (c in "\\$\0") + c for c in text)
        for text in (value, record_key)
    ]
    return "$".join(parts)


def _entry(is_deleted: bool) -> Record:
    return {"type": 7, "SecondaryIndexMetadata": {"isDeleted": is_deleted}}


def test_a_key_without_a_separator_is_corrupt() -> None:
    table = MadeUpTable(SECONDARY)
    table.add("secondary-index-by-c-0000-0", {"no separator\\$": _entry(False)})
    with pytest.raises(CorruptData, match="separator"):
        list(SecondaryIndex(table.open(), SECONDARY).scan())


EXPRESSION = "expr_index_hours"


def _expression(kind: str) -> IndexDefinition:
    return IndexDefinition(EXPRESSION, kind, "hour", ("ts",), {"expr": "hour"}, "V2")


def test_an_expression_index_covers_files_and_partitions() -> None:
    table = MadeUpTable(EXPRESSION)
    of_partition = column_prefix("ts", "__partition_stat__", "p").decode()
    low, high = ("IntWrapper", 3), ("IntWrapper", 9)
    table.add(
        "expr-index-hours-0000-0",
        {
            column_stats_key("ts", "p", "f").decode(): statistics(low, low, column="ts"),
            of_partition: statistics(low, high, file="p", column="ts", isTightBound=True),
        },
    )
    index = ExpressionIndex.of(table.open(_expression("column_stats")), EXPRESSION)
    for partitions in (None, ["p"]):
        (of_file,) = index.of_files(pa.int32(), partitions).to_pylist()
        (of_path,) = index.of_partitions(pa.int32(), partitions).to_pylist()
        assert (of_file["file_name"], of_file["max"]) == ("f", 3)
        assert (of_path["partition_path"], of_path["max"]) == ("p", 9)
    with pytest.raises(InvalidConfig, match="bloom_filters"):
        index.bloom_filters([("p", "f")])


def test_an_expression_index_of_bloom_filters() -> None:
    builder = BloomFilterBuilder(keys_per_row=100)
    builder.add(pa.array(["ab", "cd"]))
    footer = builder.footer()
    payload = {
        "type": footer["hoodie_bloom_filter_type_code"],
        "timestamp": "20260101000000000",
        "bloomFilter": footer["org.apache.hudi.bloomfilter"].encode(),
        "isDeleted": False,
    }
    table = MadeUpTable(EXPRESSION)
    records = {
        bloom_filter_key("p", name).decode(): {"BloomFilterMetadata": {**payload, "isDeleted": d}}
        for name, d in (("f", False), ("deleted", True))
    }
    table.add("expr-index-hours-0000-0", records)
    index = ExpressionIndex.of(table.open(_expression("bloom_filters")), EXPRESSION)
    found = index.bloom_filters([("p", "f"), ("p", "deleted"), ("p", "none")])
    assert list(found) == [("p", "f")]
    assert found["p", "f"].might_contain(pa.array(["ab", "cd", "ef"])).tolist() == [
        True,
        True,
        False,
    ]


def test_an_index_without_definition_is_corrupt() -> None:
    table = MadeUpTable(EXPRESSION)
    with pytest.raises(CorruptData, match=EXPRESSION):
        ExpressionIndex.of(table.open(), EXPRESSION)


@settings(deadline=None)
@given(st.binary(max_size=40) | st.sampled_from([b'{"indexDefinitions": {"a": 1}}', b"[]"]))
def test_damaged_definitions_raise_nothing_else(data: bytes) -> None:
    try:
        found = parse_definitions(data)
    except CorruptData:
        return
    assert all(definition.partition == name for name, definition in found.items())


def test_damaged_definitions_are_not_replaced() -> None:
    storage = new_storage()
    storage.put(DEFINITIONS_PATH, b'{"indexDefinitions": {')
    with pytest.raises(CorruptData, match=DEFINITIONS_PATH):
        define_record_index(storage, lambda: None, partitioned=False)
    assert storage.read(DEFINITIONS_PATH) == b'{"indexDefinitions": {'
