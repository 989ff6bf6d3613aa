"""Rows of an Arrow table in Avro binary, as they lie in Avro log blocks.

Columns, not rows, in both directions: writing lays out each column's bytes and joins them row by
row, reading moves one cursor in each row through the schema's fields. Arrays and maps are read in
rounds, the next item of every row at once.

Source: Avro 1.11, "Binary Encoding"; the types are those of ``table.schema.avro``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from table.codec import avro_binary
from table.codec.avro_binary import Mask, Piece, constant, only, varint
from table.codec.avro_cursors import Cursors
from table.codec.avro_nodes import ENTRY, Node, root_of
from table.codec.byte_strings import ByteStrings, byte_strings
from table.errors import CorruptData, InvalidRecords

#: Rows laid out at a time, so that their bytes stay in the cache.
_CHUNK_ROWS = 1 << 14

#: Bytes of a decimal's unscaled value that anybody may have written, zeros in front included.
_LONGEST_DECIMAL = 64


def encode_rows(
    rows: pa.Table, avro_schema: Mapping[str, object]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """All rows' datums, one after the other, and where each begins.

    Args:
        rows: has the columns of the schema, in any order; types are cast to the schema's.
        avro_schema: a record.

    Returns:
        The bytes, and ``n + 1`` offsets of which the first is 0.

    Raises:
        InvalidRecords: a null where the schema allows none.
    """
    root = root_of(avro_schema)
    schema = pa.schema(root.arrow.fields)
    batches = _cast(rows.select(schema.names), schema).combine_chunks().to_batches(_CHUNK_ROWS)
    encoded = [_encode_batch(batch, root) for batch in batches if batch.num_rows]
    data = [np.empty(0, np.uint8), *(datums.data for datums in encoded)]
    lengths = [np.zeros(1, np.int64), *(datums.lengths for datums in encoded)]
    return np.concatenate(data), np.cumsum(np.concatenate(lengths))


def decode_rows(
    data: npt.NDArray[np.uint8] | memoryview,
    starts: Sequence[int] | npt.NDArray[np.int64],
    ends: Sequence[int] | npt.NDArray[np.int64],
    avro_schema: Mapping[str, object],
    path: str = "Avro rows",
) -> pa.Table:
    """The rows whose datums are ``data[starts[i]:ends[i]]``.

    Args:
        data: bytes that hold the datums, maybe with other bytes between them.
        starts: ascending.
        ends: each at most the next start.
        avro_schema: the record that they were written with.
        path: file that holds them, for messages.

    Returns:
        Columns with the types that ``to_arrow`` gives the schema.

    Raises:
        CorruptData: bytes that disagree with the schema.
    """
    begin, end = np.array(starts, np.int64), np.array(ends, np.int64)
    assert (begin[1:] >= end[:-1]).all(), "datums out of order"
    root = root_of(avro_schema)
    cursors = Cursors(np.frombuffer(data, np.uint8), begin, end, path)
    cursors.check((begin >= 0) & (begin <= end) & (end <= len(data)), "rows inside the data")
    try:
        rows = _decode_value(cursors, root)
    except pa.ArrowInvalid as error:
        raise CorruptData(path, None, "values of the schema's types", str(error)) from error
    cursors.check_finished()
    return pa.Table.from_arrays(rows.flatten(), schema=pa.schema(root.arrow.fields))


# --- rows to bytes


def _cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    for field, column in zip(schema, rows.columns, strict=True):
        if column.null_count and not field.nullable:
            message = f"column {field.name} has nulls, which its schema does not allow"
            raise InvalidRecords(message)
    return rows if rows.schema.equals(schema) else rows.cast(schema)


def _encode_batch(batch: pa.RecordBatch, root: Node) -> ByteStrings:
    everywhere = np.ones(batch.num_rows, np.bool_)
    pieces = [
        piece
        for column, node, field in zip(batch.columns, root.children, batch.schema, strict=True)
        for piece in _encode(column, node, everywhere, field.name)
    ]
    if not pieces:
        return ByteStrings(np.empty(0, np.uint8), np.zeros(batch.num_rows + 1, np.int64))
    return avro_binary.join(pieces)


def _encode(column: pa.Array, node: Node, here: Mask, name: str) -> list[Piece]:
    """Pieces of a column's datums; rows that are not ``here`` get no bytes at all."""
    valid = here & np.asarray(column.is_valid()) if column.null_count else here
    if node.null_branch is None and not np.array_equal(valid, here):
        message = f"column {name} holds a null where its schema allows none"
        raise InvalidRecords(message)
    value = _encode_value(column, node, valid, name)
    if node.branch is None:
        return value
    branch = np.where(valid, node.branch, node.null_branch or 0)
    return [only(varint(branch), here), *value]


def _encode_value(column: pa.Array, node: Node, here: Mask, name: str) -> list[Piece]:
    if node.kind == "record":
        return [
            piece
            for child, own, field in zip(
                column.flatten(), node.children, node.arrow.fields, strict=True
            )
            for piece in _encode(child, own, here, f"{name}.{field.name}")
        ]
    if node.kind == "array":
        return _encode_blocks(column, node.children[0], here, name)
    if node.kind == "map":
        entry = _entry(node)
        return _encode_blocks(column.cast(pa.list_(entry.arrow)), entry, here, name)
    return [only(piece, here) for piece in _encode_leaf(column, node)]


def _encode_leaf(column: pa.Array, node: Node) -> list[Piece]:
    if node.kind == "enum":
        return [avro_binary.scalars(_symbol_places(column, node.symbols))]
    if pa.types.is_decimal(node.arrow):
        if node.kind == "fixed":
            return [avro_binary.fixed_decimals(column, node.size_bytes)]
        return avro_binary.decimals(column)
    if node.kind == "fixed":
        return [avro_binary.fixed(column)]
    if node.kind in ("string", "bytes"):
        return avro_binary.strings(column)
    return [avro_binary.scalars(column)]


def _symbol_places(column: pa.Array, symbols: Sequence[str]) -> pa.Array:
    places = pc.index_in(column, pa.array(symbols, column.type))
    if places.null_count > column.null_count:
        message = f"a value is none of the enum's symbols {list(symbols)}"
        raise InvalidRecords(message)
    return places


def _encode_blocks(lists: pa.ListArray, item: Node, here: Mask, name: str) -> list[Piece]:
    """Number of items, the items, and 0 for the end; no number when there are none."""
    items = lists.flatten()
    counts = np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
    ends = np.cumsum(counts)
    everywhere = np.ones(len(items), np.bool_)
    datums = avro_binary.join(_encode(items, item, everywhere, name))
    bounds = datums.offsets[np.concatenate([[0], ends])]
    return [
        only(varint(counts), here & (counts > 0)),
        only(ByteStrings(datums.data, bounds).to_arrow(), here),
        only(constant(b"\x00", len(lists)), here),
    ]


def _entry(node: Node) -> Node:
    """The record that an entry of a map is."""
    fields = [
        pa.field(ENTRY[0], node.arrow.key_type, nullable=False),
        pa.field(ENTRY[1], node.arrow.item_type, nullable=node.arrow.item_field.nullable),
    ]
    return Node("record", pa.struct(fields), node.children)


# --- bytes to rows


def _decode(cursors: Cursors, node: Node) -> pa.Array:
    if node.branch is None:
        return _decode_value(cursors, node)
    branches = cursors.longs()
    valid: Mask = branches == node.branch
    cursors.check(valid | (branches == node.null_branch), "a branch of the union")
    if valid.all():
        return _decode_value(cursors, node)
    picked = cursors.pick(valid)
    values = _decode_value(picked, node)
    cursors.put(valid, picked)
    return values.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def _decode_value(cursors: Cursors, node: Node) -> pa.Array:
    if node.kind == "record":
        columns = [_decode(cursors, child) for child in node.children]
        return _struct(columns, node.arrow, len(cursors))
    if node.kind == "array":
        offsets, items = _decode_blocks(cursors, node.children[0])
        return pa.ListArray.from_arrays(offsets, items, type=node.arrow)
    if node.kind == "map":
        offsets, entries = _decode_blocks(cursors, _entry(node))
        return pa.MapArray.from_arrays(offsets, *entries.flatten(), type=node.arrow)
    return _decode_leaf(cursors, node)


def _struct(columns: Sequence[pa.Array], arrow: pa.DataType, row_count: int) -> pa.Array:
    return pa.Array.from_buffers(arrow, row_count, [None], 0, children=list(columns))


def _decode_blocks(cursors: Cursors, item: Node) -> tuple[pa.Array, pa.Array]:
    """Offsets and items of every row's array, an item of each row at a time."""
    rounds: list[tuple[npt.NDArray[np.intp], pa.Array]] = []
    left = np.zeros(len(cursors), np.int64)
    rows = _next_block(cursors, np.arange(len(cursors)), left)
    while len(rows):
        picked = cursors.pick(rows)
        rounds.append((rows, _decode(picked, item)))
        cursors.put(rows, picked)
        left[rows] -= 1
        more = rows[left[rows] > 0]
        rows = np.sort(np.append(more, _next_block(cursors, rows[left[rows] == 0], left)))
    return _in_row_order(rounds, item.arrow, len(cursors))


def _next_block(
    cursors: Cursors, rows: npt.NDArray[np.intp], left: npt.NDArray[np.int64]
) -> npt.NDArray[np.intp]:
    """Those of ``rows`` that have another block; ``left`` gets its number of items."""
    picked = cursors.pick(rows)
    counts = picked.longs()
    with_size = counts < 0
    sized = picked.pick(with_size)
    sized.longs()  # size of the block in bytes, for readers who skip it
    picked.put(with_size, sized)
    counts = np.abs(counts)
    # An item of no bytes (a record without fields) could otherwise be claimed without end.
    picked.check((counts >= 0) & (counts <= picked.bytes_left()), "items inside their row")
    cursors.put(rows, picked)
    left[rows] = counts
    return rows[counts > 0]


def _in_row_order(
    rounds: Sequence[tuple[npt.NDArray[np.intp], pa.Array]], arrow: pa.DataType, row_count: int
) -> tuple[pa.Array, pa.Array]:
    rows = np.concatenate([np.empty(0, np.intp), *(rows for rows, _ in rounds)])
    offsets = np.zeros(row_count + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=row_count), out=offsets[1:])
    items = pa.concat_arrays([pa.nulls(0, arrow), *(items for _, items in rounds)])
    if len(rounds) > 1:
        items = items.take(pa.array(np.argsort(rows, kind="stable")))
    return pa.array(offsets), items


def _decode_leaf(cursors: Cursors, node: Node) -> pa.Array:
    if node.kind in ("int", "long"):
        return _decode_integers(cursors, node)
    if node.kind == "boolean":
        cells = cursors.fixed(1).reshape(-1)
        cursors.check(cells <= 1, "a boolean, 0 or 1")
        return pa.array(cells.astype(np.bool_))
    if node.kind in ("float", "double"):
        cells = cursors.fixed(node.arrow.bit_width // 8)
        return pa.Array.from_buffers(node.arrow, len(cells), [None, pa.py_buffer(cells)])
    if node.kind == "enum":
        places = cursors.longs()
        cursors.check((places >= 0) & (places < len(node.symbols)), "a symbol of the enum")
        return pa.array(node.symbols, pa.string()).take(pa.array(places))
    if node.kind == "fixed":
        cells = cursors.fixed(node.size_bytes)
        if pa.types.is_decimal(node.arrow):
            return avro_binary.decimals_from(cells, node.arrow)
        return pa.Array.from_buffers(node.arrow, len(cells), [None, pa.py_buffer(cells)])
    if pa.types.is_decimal(node.arrow):
        return _decode_decimals(cursors, node.arrow)
    return cursors.strings().cast(node.arrow)


def _decode_integers(cursors: Cursors, node: Node) -> pa.Array:
    values = cursors.longs()
    if node.kind == "long":
        return pa.array(values).view(node.arrow)
    narrow = values.astype(np.int32)
    cursors.check(narrow == values, "an integer of 32 bits")
    return pa.array(narrow).view(node.arrow)


def _decode_decimals(cursors: Cursors, arrow: pa.DataType) -> pa.Array:
    """From ``bytes``: each value is widened by its sign to the same number of bytes."""
    values = byte_strings(cursors.strings())
    width = max(avro_binary.UNSCALED_BYTES, int(values.lengths.max(initial=0)))
    cursors.check((values.lengths > 0) & (values.lengths <= _LONGEST_DECIMAL), "a decimal")
    back = np.arange(width, 0, -1)
    at = np.maximum(values.offsets[1:, None] - back, values.offsets[:-1, None])
    cells = values.data[at]
    sign = (cells[:, :1] >> 7) * np.uint8(0xFF)
    return avro_binary.decimals_from(np.where(back > values.lengths[:, None], sign, cells), arrow)
