"""Reads values of a schema from many rows of Avro binary at once.

Arrays and maps are read in rounds: the next item of every row that has one, until none has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from table.codec.avro_binary import Mask, decimals_from
from table.codec.avro_cursors import Cursors, Rows
from table.codec.avro_nodes import Node, entry_of


def read_value(cursors: Cursors, node: Node) -> pa.Array:
    """The next value of each row.

    Raises:
        CorruptData: bytes that are no such value.
        pyarrow.ArrowException: a string that is not UTF-8, a decimal with too many digits.
    """
    if node.kind == "record":
        columns = [_decode(cursors, child) for child in node.children]
        return _struct(columns, node.arrow, len(cursors))
    if node.kind == "array":
        offsets, items = _decode_blocks(cursors, node.children[0])
        return pa.ListArray.from_arrays(offsets, items, type=node.arrow)
    if node.kind == "map":
        offsets, entries = _decode_blocks(cursors, entry_of(node))
        return pa.MapArray.from_arrays(offsets, *entries.flatten(), type=node.arrow)
    return _decode_leaf(cursors, node)


def _decode(cursors: Cursors, node: Node) -> pa.Array:
    if node.branch is None:
        return read_value(cursors, node)
    branches = cursors.longs()
    valid: Mask = branches == node.branch
    cursors.check(valid | (branches == node.null_branch), "a branch of the union")
    if valid.all():
        return read_value(cursors, node)
    picked = cursors.pick(valid)
    values = read_value(picked, node)
    cursors.put(valid, picked)
    return values.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def _struct(columns: Sequence[pa.Array], arrow: pa.DataType, row_count: int) -> pa.Array:
    return pa.Array.from_buffers(arrow, row_count, [None], 0, children=list(columns))


def _decode_blocks(cursors: Cursors, item: Node) -> tuple[pa.Array, pa.Array]:
    """Offsets and items of every row's array, an item of each row at a time."""
    rounds: list[tuple[Rows, pa.Array]] = []
    left = np.zeros(len(cursors), np.int64)
    rows = cursors.next_block(np.arange(len(cursors)), left)
    while len(rows):
        picked = cursors.pick(rows)
        rounds.append((rows, _decode(picked, item)))
        cursors.put(rows, picked)
        rows = cursors.next_items(rows, left)
    return _in_row_order(rounds, item.arrow, len(cursors))


def _in_row_order(
    rounds: Sequence[tuple[Rows, pa.Array]], arrow: pa.DataType, row_count: int
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
        return cursors.integers(node.arrow)
    if node.kind == "boolean":
        return pa.array(cursors.booleans())
    if node.kind == "enum":
        places = cursors.longs()
        cursors.check((places >= 0) & (places < len(node.symbols)), "a symbol of the enum")
        return pa.array(node.symbols, pa.string()).take(pa.array(places))
    if pa.types.is_decimal(node.arrow):
        is_fixed = node.kind == "fixed"
        unscaled = cursors.fixed(node.size_bytes) if is_fixed else cursors.decimals()
        return decimals_from(unscaled, node.arrow)
    if node.kind in ("string", "bytes"):
        return cursors.strings().cast(node.arrow)
    return cursors.fixed_values(node.arrow)
