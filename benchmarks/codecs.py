"""Measures each codec of lakemark and the library that could replace it, in rows a second.

``python -m benchmarks.codecs [--rows N] [WORD ...]``

Both do the same work on the same rows, from bytes to Arrow columns or back, and give the same
result; otherwise the run fails. Most libraries work row by row, so the conversion between Python
values and columns is part of their time. If no library implements the format, the peer is the loop
in Python that the codec replaces. Each time is the least processor time of several repetitions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.json as pj

from lakemark.codec import avro_container
from lakemark.codec.avro_rows import decode_rows, encode_rows
from lakemark.codec.byte_strings import byte_strings
from lakemark.codec.hfile import Entries, write_hfile
from lakemark.codec.hfile.hfile_data_block import encode_entries
from lakemark.codec.java_hash import string_hash
from lakemark.codec.murmur2 import Murmur2
from lakemark.schema.avro import to_arrow, to_avro
from tests.protobuf.drawn_messages import (
    DrawnField,
    DrawnType,
    descriptor_set,
    message_class,
)
from transforms.decode.json import JsonDecoder
from transforms.decode.protobuf.decoder import ProtobufDecoder
from transforms.decode.protobuf.framing import DeclaredMessage

_REPETITIONS = 5
_LOOP = "loop in Python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A codec, and the library that could replace it.

    Attributes:
        codec: its module, and the direction.
        own: runs the codec over all rows once.
        peer: the name of the library.
        other: runs the library over the same rows once.
        rows: how many rows one run has.
    """

    codec: str
    own: Callable[[], object]
    peer: str
    other: Callable[[], object]
    rows: int

    def measured(self) -> str:
        """Measure both, and return a line of the report."""
        own, other = (self.rows / _least_s(run) for run in (self.own, self.other))
        return f"| {self.codec} | {own:,.0f} | {self.peer} | {other:,.0f} | {own / other:.2f} |"


def _least_s(run: Callable[[], object]) -> float:
    run()
    times_s = []
    for _ in range(_REPETITIONS):
        began_s = time.process_time()
        run()
        times_s.append(time.process_time() - began_s)
    return min(times_s)


def orders(rows: int) -> pa.Table:
    """Create rows of nine columns, like those of a topic of orders; one note in seven is null."""
    numbers = np.arange(rows)
    return pa.table(
        {
            "id": [f"order-{number * 7919 % 1_000_003:08d}" for number in range(rows)],
            "customer": [f"customer-{number % 997}" for number in range(rows)],
            "status": [("new", "paid", "sent")[number % 3] for number in range(rows)],
            "amount": numbers * 37 % 10_007 / 100,
            "quantity": pa.array(numbers % 13, pa.int32()),
            "placed_at_us": 1_700_000_000_000_000 + numbers * 977,
            "is_gift": numbers % 2 == 0,
            "note": [None if number % 7 == 0 else f"note {number}" for number in range(rows)],
            "tags": [["a", "b"][: number % 3] for number in range(rows)],
        }
    )


def comparisons(rows: int) -> Iterator[Comparison]:
    """Yield all comparisons; each creates its input when it is reached."""
    table = orders(rows)
    yield from _avro_rows(table)
    yield from _avro_container()
    yield from _json(table)
    yield from _protobuf(table)
    yield from _hashes(table["id"].combine_chunks())
    yield from _hfile(table)


def _avro_rows(table: pa.Table) -> Iterator[Comparison]:
    schema = to_avro(table.schema, "orders")
    parsed = fastavro.parse_schema(schema)
    data, offsets = encode_rows(table, schema)
    starts, ends, whole = offsets[:-1], offsets[1:], data.tobytes()
    arrow = to_arrow(schema)

    def read() -> pa.Table:
        datums = (whole[start:end] for start, end in zip(starts, ends, strict=True))
        records = [fastavro.schemaless_reader(BytesIO(datum), parsed, None) for datum in datums]
        return pa.Table.from_pylist(records, schema=arrow)

    def write() -> bytes:
        buffer = BytesIO()
        for record in table.to_pylist():
            fastavro.schemaless_writer(buffer, parsed, record)
        return buffer.getvalue()

    _check_same(read(), decode_rows(data, starts, ends, schema))
    _check_same(write(), whole)
    yield Comparison(
        codec="codec.avro_rows, read",
        own=lambda: decode_rows(data, starts, ends, schema),
        peer="fastavro",
        other=read,
        rows=table.num_rows,
    )
    yield Comparison(
        codec="codec.avro_rows, write",
        own=lambda: encode_rows(table, schema),
        peer="fastavro",
        other=write,
        rows=table.num_rows,
    )


def _avro_container() -> Iterator[Comparison]:
    """Compare small files of one record, which ``fastavro`` encodes; lakemark adds the frame."""
    name = "HoodieSavepointMetadata"
    files = {"partitionPath": "p", "savepointDataFile": [f"{n}.parquet" for n in range(100)]}
    record: dict[str, object] = {
        "savepointedBy": "ann",
        "savepointedAt": 0,
        "comments": "",
        "partitionMetadata": {"p": files},
    }
    parsed = fastavro.parse_schema(avro_container.load_schema(name))

    def write() -> bytes:
        buffer = BytesIO()
        fastavro.writer(buffer, parsed, [record])
        return buffer.getvalue()

    _check_same(
        avro_container.decode(write(), "file"),
        avro_container.decode(avro_container.encode(name, record), "file"),
    )
    yield Comparison(
        codec="codec.avro_container, write",
        own=lambda: avro_container.encode(name, record),
        peer="fastavro.writer",
        other=write,
        rows=1,
    )


def _json(table: pa.Table) -> Iterator[Comparison]:
    texts = [orjson.dumps(record) for record in table.to_pylist()]
    values, schema = pa.array(texts, pa.binary()), table.schema
    decoder = JsonDecoder(schema)

    def by_orjson() -> pa.Table:
        return pa.Table.from_pylist([orjson.loads(text) for text in texts], schema=schema)

    def by_pyarrow() -> pa.Table:
        options = pj.ParseOptions(explicit_schema=schema)
        return pj.read_json(BytesIO(b"\n".join(values.to_pylist())), parse_options=options)

    for other in (by_orjson, by_pyarrow):
        _check_same(other().combine_chunks(), decoder.decode(values).rows.combine_chunks())
    for peer, other in (("orjson", by_orjson), ("pyarrow.json", by_pyarrow)):
        yield Comparison(
            codec="transforms.decode.json, read",
            own=lambda: decoder.decode(values),
            peer=peer,
            other=other,
            rows=len(texts),
        )


_PROTO_TYPES = {
    pa.string(): "string",
    pa.float64(): "double",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.bool_(): "bool",
}


def _protobuf(table: pa.Table) -> Iterator[Comparison]:
    """Compare the reading of messages, whose fields are those of the table."""
    names = table.column_names
    fields = tuple(_proto_field(number, one) for number, one in enumerate(table.schema, 1))
    described = descriptor_set(DrawnType("Root", fields, ()))
    kind = message_class(described, "drawn.Root")
    records = [{n: v for n, v in row.items() if v is not None} for row in table.to_pylist()]
    messages = [kind(**record).SerializeToString() for record in records]
    framing = DeclaredMessage(described.SerializeToString(), "drawn.Root")
    decoder = ProtobufDecoder(table.schema, framing=framing)
    values = pa.array(messages, pa.binary())

    def by_google() -> pa.Table:
        parsed: list[Any] = [kind.FromString(message) for message in messages]
        columns = {name: [getattr(one, name) for one in parsed] for name in names}
        columns["note"] = [one.note if one.HasField("note") else None for one in parsed]
        columns["tags"] = [list(one.tags) for one in parsed]
        return pa.table(columns, schema=table.schema)

    _check_same(by_google(), decoder.decode(values).rows.combine_chunks())
    yield Comparison(
        codec="transforms.decode.protobuf, read",
        own=lambda: decoder.decode(values),
        peer="protobuf",
        other=by_google,
        rows=len(messages),
    )


def _proto_field(number: int, column: pa.Field) -> DrawnField:
    if pa.types.is_list(column.type):
        return DrawnField(column.name, number, _PROTO_TYPES[column.type.value_type], "repeated")
    label = "optional" if column.name == "note" else ""
    return DrawnField(column.name, number, _PROTO_TYPES[column.type], label)


def _hashes(keys: pa.Array) -> Iterator[Comparison]:
    texts: list[str] = keys.to_pylist()
    seed = np.zeros(len(keys), np.uint32)
    strings = byte_strings(keys)
    moved = Murmur2(strings).order
    order = range(len(keys)) if moved is None else moved.tolist()

    def java() -> list[int]:
        return [_java_hash(text) for text in texts]

    def murmur() -> list[int]:
        return [_murmur2(texts[row].encode()) for row in order]

    _check_same(java(), string_hash(keys).tolist())
    _check_same(murmur(), Murmur2(strings).hash(seed).tolist())
    yield Comparison(
        codec="codec.java_hash",
        own=lambda: string_hash(keys),
        peer=_LOOP,
        other=java,
        rows=len(keys),
    )
    yield Comparison(
        codec="codec.murmur2",
        own=lambda: Murmur2(strings).hash(seed),
        peer=_LOOP,
        other=murmur,
        rows=len(keys),
    )


def _java_hash(text: str) -> int:
    hashed = 0
    for letter in text.encode():
        hashed = (31 * hashed + letter) & 0xFFFFFFFF
    return hashed - (hashed >> 31 << 32)


def _murmur2(data: bytes) -> int:
    factor, hashed = 0x5BD1E995, len(data)
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * factor & 0xFFFFFFFF
        word = (word ^ (word >> 24)) * factor & 0xFFFFFFFF
        hashed = (hashed * factor & 0xFFFFFFFF) ^ word
    if len(data) > whole:
        tail = int.from_bytes(data[whole:], "big")
        hashed = (hashed ^ tail) * factor & 0xFFFFFFFF
    hashed = (hashed ^ (hashed >> 13)) * factor & 0xFFFFFFFF
    return hashed ^ (hashed >> 15)


def _hfile(table: pa.Table) -> Iterator[Comparison]:
    keys = table["id"].combine_chunks().unique().cast(pa.binary()).sort()
    entries = Entries(keys, pa.array([b"value of " + key for key in keys.to_pylist()]))

    def loop() -> bytes:
        pairs = zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True)
        return b"".join(_entry(key, value) for key, value in pairs)

    _check_same(loop(), bytes(encode_entries(entries)))
    assert write_hfile(entries, created_ms=0)
    yield Comparison(
        codec="codec.hfile, data block",
        own=lambda: encode_entries(entries),
        peer=_LOOP,
        other=loop,
        rows=len(keys),
    )


def _entry(key: bytes, value: bytes) -> bytes:
    lengths = (len(key) + 12).to_bytes(4) + len(value).to_bytes(4) + len(key).to_bytes(2)
    return lengths + key + b"\0" + b"\x7f" + 7 * b"\xff" + b"\4" + value + b"\0"


def _check_same(one: object, other: object) -> None:
    if one != other:
        message = f"the results differ: {one!r:.500} and {other!r:.500}"
        raise AssertionError(message)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.codecs", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only codecs with all these words")
    parser.add_argument("--rows", type=int, default=200_000)
    asked = parser.parse_args(arguments)
    print("| codec | rows/s | library | rows/s | times as fast |\n|---|---|---|---|---|")
    for comparison in comparisons(asked.rows):
        if all(word in comparison.codec for word in asked.words):
            print(comparison.measured(), flush=True)


if __name__ == "__main__":
    main()
