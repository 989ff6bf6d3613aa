from __future__ import annotations

import io
import itertools
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.avro_rows import encode_rows
from lakemark.errors import CorruptData, HudiError, StorageUnavailable, Unsupported
from lakemark.log.data_block import encode_avro, encode_parquet, read_rows
from lakemark.log.log_block import BlockType, HeaderKey, LogBlock, encode
from lakemark.log.log_reader import read_blocks
from lakemark.schema.avro import to_arrow, to_avro, to_json
from tests.unit.codec.hfiles import HFileBuilder
from tests.unit.log.blocks import GOLDEN, block_of, mutations, read_all

SCHEMA = pa.schema(
    [
        pa.field("_hoodie_record_key", pa.string()),
        pa.field("qty", pa.int32()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("seen", pa.timestamp("us", "UTC")),
        pa.field("seen_ms", pa.timestamp("ms", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("day", pa.date32()),
        pa.field("tags", pa.list_(pa.field("element", pa.string()))),
        pa.field("attrs", pa.map_(pa.string(), pa.int64())),
        pa.field("pos", pa.struct([pa.field("lat", pa.float64()), pa.field("ok", pa.bool_())])),
        pa.field("raw", pa.binary(), nullable=False),
    ]
)
AVRO_SCHEMA = to_avro(SCHEMA, "trips")
NOON = datetime(2026, 1, 2, 12, 0, 0, 123000, UTC)
ROWS = pa.Table.from_pylist(
    [
        {
            "_hoodie_record_key": "a", "qty": 1, "price": Decimal("12.30"), "seen": NOON,
            "seen_ms": NOON, "local": NOON.replace(tzinfo=None), "day": date(2026, 1, 2),
            "tags": ["x", None, ""], "attrs": [("k", 1), ("l", None)],
            "pos": {"lat": 1.5, "ok": None}, "raw": b"\x00",
        },
        {"_hoodie_record_key": "b", "tags": [], "attrs": [], "pos": {}, "raw": b""},
        {"_hoodie_record_key": None, "raw": b"x" * 300},
    ],
    SCHEMA,
)  # fmt: skip

Encode = Callable[[pa.Table, Mapping[str, object]], memoryview]
KINDS = [(BlockType.AVRO_DATA, encode_avro), (BlockType.PARQUET_DATA, encode_parquet)]
each_kind = pytest.mark.parametrize(("block_type", "encoded"), KINDS, ids=["avro", "parquet"])


def _block(block_type: BlockType, content: bytes, schema: Mapping[str, object]) -> LogBlock:
    header = {HeaderKey.SCHEMA: to_json(schema), HeaderKey.INSTANT_TIME: "20260101000000000"}
    return block_of(block_type, content, header)


@each_kind
@pytest.mark.parametrize("row_count", [0, 1, 3])
def test_rows_come_back_as_they_were(
    block_type: BlockType, encoded: Encode, row_count: int
) -> None:
    rows = ROWS.slice(0, row_count)
    read = read_rows(_block(block_type, bytes(encoded(rows, AVRO_SCHEMA)), AVRO_SCHEMA))
    assert read.schema == SCHEMA
    assert read.equals(rows)


@each_kind
def test_only_the_columns_asked_for_are_read(block_type: BlockType, encoded: Encode) -> None:
    block = _block(block_type, bytes(encoded(ROWS, AVRO_SCHEMA)), AVRO_SCHEMA)
    read = read_rows(block, ["pos", "not_yet_there", "qty"])
    assert read.equals(ROWS.select(["qty", "pos"]))


def test_of_a_large_parquet_block_only_the_wanted_column_is_fetched() -> None:
    schema = pa.schema([pa.field("small", pa.int64()), pa.field("large", pa.string())])
    values = [str(number) * 40 for number in range(100_000)]
    rows = pa.table([pa.array(range(100_000)), pa.array(values)], schema)
    avro_schema = to_avro(schema, "trips")
    content = encode_parquet(rows, avro_schema)
    header = {HeaderKey.SCHEMA: to_json(avro_schema)}
    log = encode(BlockType.PARQUET_DATA, header, content) + encode(
        BlockType.PARQUET_DATA, header, bytes(2 << 20)
    )
    file = _CountingFile(log)
    block = next(read_blocks(file, len(log), "some.log"))
    file.read_bytes = 0
    assert read_rows(block, ["small"]).equals(rows.select(["small"]))
    assert file.read_bytes < len(content) * 0.7


class _CountingFile(io.BytesIO):
    read_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.read_bytes += len(data)
        return data


def test_parquet_is_what_apache_expects() -> None:
    """Lists have three levels, times keep their unit, and the footer has the Avro schema."""
    file = pq.ParquetFile(io.BytesIO(encode_parquet(ROWS, AVRO_SCHEMA)))
    paths = [file.schema.column(i).path for i in range(len(file.schema))]
    assert "tags.list.element" in paths
    assert "attrs.key_value.key" in paths
    times = {file.schema.column(i).name: str(file.schema.column(i).logical_type) for i in (3, 4, 5)}
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in times["seen"]
    assert "isAdjustedToUTC=true, timeUnit=milliseconds" in times["seen_ms"]
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in times["local"]
    footer = file.metadata.metadata
    assert footer[b"writer.model.name"] == b"avro"
    assert json.loads(footer[b"parquet.avro.schema"]) == AVRO_SCHEMA
    assert b"ARROW:schema" not in footer
    price = file.schema.column(2)
    assert (price.physical_type, price.length) == ("FIXED_LEN_BYTE_ARRAY", 6)


def test_apaches_avro_rows_are_read_as_fastavro_reads_them() -> None:
    block = read_all((GOLDEN / "avro_data_and_delete.log").read_bytes())[0]
    rows = read_rows(block)
    assert rows.schema == to_arrow(block.avro_schema)
    one_by_one = list(_read_one_by_one(block.content.read(), block.avro_schema))
    assert rows.to_pylist(maps_as_pydicts="strict") == one_by_one


def _read_one_by_one(content: bytes, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    stream = io.BytesIO(content)
    parsed = fastavro.parse_schema(schema)
    _, count = struct.unpack(">ii", stream.read(8))
    for _ in range(count):
        (length,) = struct.unpack(">i", stream.read(4))
        record = fastavro.schemaless_reader(io.BytesIO(stream.read(length)), parsed, None)
        assert isinstance(record, dict)
        yield record


def test_apaches_parquet_rows_have_the_types_of_their_avro_schema() -> None:
    block = read_all((GOLDEN / "parquet_data_and_delete.log").read_bytes())[0]
    rows = read_rows(block)
    assert rows.schema == to_arrow(block.avro_schema)
    stored = pq.read_table(pa.BufferReader(block.content.read()))
    assert rows.num_rows == 2
    assert rows.to_pylist() == stored.to_pylist()


def test_apaches_avro_content_is_written_byte_for_byte() -> None:
    block = read_all((GOLDEN / "avro_data_and_delete.log").read_bytes())[0]
    assert bytes(encode_avro(read_rows(block), block.avro_schema)) == block.content.read()


def _hfile_content(rows: pa.Table, schema: Mapping[str, object]) -> bytes:
    data, offsets = encode_rows(rows, schema)
    values = [data[a:b].tobytes() for a, b in itertools.pairwise(offsets)]
    keys = [f"k{number}".encode() for number in range(len(values))]
    # Blocks of a row each: they are read one after the other.
    return HFileBuilder(block_bytes=1).build(zip(keys, values, strict=True))


@pytest.mark.parametrize("row_count", [0, 1, 3])
def test_rows_of_an_hfile_come_out_in_the_order_of_their_keys(row_count: int) -> None:
    rows = ROWS.slice(0, row_count)
    block = _block(BlockType.HFILE_DATA, _hfile_content(rows, AVRO_SCHEMA), AVRO_SCHEMA)
    assert read_rows(block).equals(rows)
    assert read_rows(block, ["qty"]).equals(rows.select(["qty"]))


def test_the_key_of_an_hfile_replaces_an_empty_stored_key() -> None:
    schema = pa.schema([pa.field("key", pa.string(), nullable=False), pa.field("n", pa.int64())])
    rows = pa.table([["", "own"], [1, 2]], schema=schema)
    avro = to_avro(schema, "t")
    block = _block(BlockType.HFILE_DATA, _hfile_content(rows, avro), avro)
    assert read_rows(block)["key"].to_pylist() == ["k0", "own"]


@settings(deadline=None)
@given(st.data())
def test_a_damaged_hfile_is_read_or_refused(data: st.DataObject) -> None:
    whole = _hfile_content(ROWS, AVRO_SCHEMA)
    damaged = data.draw(mutations(whole))
    try:
        read_rows(_block(BlockType.HFILE_DATA, damaged, AVRO_SCHEMA))
    except HudiError as error:
        assert isinstance(error, CorruptData | Unsupported)
        assert "some.log" in str(error)


def test_blocks_without_rows_are_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="has a COMMAND block"):
        read_rows(block_of(BlockType.COMMAND, b""))


@pytest.mark.parametrize("version", [1, 2])
def test_avro_blocks_of_older_versions_have_the_same_layout(version: int) -> None:
    content = struct.pack(">i", version) + bytes(encode_avro(ROWS, AVRO_SCHEMA))[4:]
    assert read_rows(_block(BlockType.AVRO_DATA, content, AVRO_SCHEMA)).equals(ROWS)


@pytest.mark.refuses("Avro log blocks of versions other than 1 to 3")
@pytest.mark.parametrize("version", [0, 4])
def test_avro_blocks_of_other_versions_are_refused(version: int) -> None:
    content = struct.pack(">ii", version, 0)
    with pytest.raises(Unsupported, match=f"Avro block of version {version}"):
        read_rows(_block(BlockType.AVRO_DATA, content, AVRO_SCHEMA))


LENGTHS = [[-1], [5, 0], [0, -4, 0], [2**31 - 1], [-(2**31)], [0, 4]]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_lengths_that_lead_astray_are_corrupt(lengths: list[int]) -> None:
    no_columns = {"type": "record", "name": "r", "fields": []}
    content = struct.pack(f">ii{len(lengths)}i", 3, len(lengths), *lengths)
    with pytest.raises(CorruptData):
        read_rows(_block(BlockType.AVRO_DATA, content, no_columns))


@pytest.mark.parametrize("name", ["avro_data_and_delete", "parquet_data_and_delete"])
@settings(deadline=None)
@given(st.data())
def test_damaged_content_is_read_or_refused(name: str, data: st.DataObject) -> None:
    block = read_all((GOLDEN / f"{name}.log").read_bytes())[0]
    damaged = data.draw(mutations(block.content.read()))
    try:
        read_rows(block_of(block.type, damaged, block.header))
    except HudiError as error:
        assert isinstance(error, CorruptData | Unsupported)


@settings(deadline=None)
@given(st.data())
def test_a_damaged_schema_is_read_or_refused(data: st.DataObject) -> None:
    block = read_all((GOLDEN / "avro_data_and_delete.log").read_bytes())[0]
    schema = data.draw(mutations(block.header[HeaderKey.SCHEMA].encode())).decode(errors="replace")
    header = {**block.header, HeaderKey.SCHEMA: schema}
    try:
        read_rows(block_of(block.type, block.content.read(), header))
    except HudiError as error:
        assert isinstance(error, CorruptData | Unsupported)


class _BusyFile(io.BytesIO):
    """A file whose store stops answering."""

    is_busy = False

    def read(self, size: int | None = -1, /) -> bytes:
        if self.is_busy:
            raise StorageUnavailable
        return super().read(size)


def test_an_unavailable_store_is_not_reported_as_a_corrupt_block() -> None:
    header = {HeaderKey.SCHEMA: to_json(AVRO_SCHEMA)}
    log = encode(BlockType.PARQUET_DATA, header, encode_parquet(ROWS, AVRO_SCHEMA))
    log += encode(BlockType.DELETE, {}, bytes(2 << 20))
    file = _BusyFile(log)
    block = next(read_blocks(file, len(log), "some.log"))
    file.is_busy = True
    with pytest.raises(StorageUnavailable):
        read_rows(block)
