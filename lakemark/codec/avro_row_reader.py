"""Reads values of a schema from many rows of Avro binary at once.

Arrays and maps are read in rounds: each round reads the next item of all rows that have another
item. When only a few rows have more items, the positions of all remaining items are found first.
Then these items are read at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.codec.avro_binary import Mask, decimals_from
from lakemark.codec.avro_cursors import Cursors, Rows
from lakemark.codec.avro_nodes import Node, entry_of
from lakemark.codec.avro_walk import BrokenDatum, Walk

#: If at most this many rows have more items, stepping over the items costs less than more rounds.
_FEW_ROWS = 32


def read_value(cursors: Cursors, node: Node) -> pa.Array:
    """Read the next value of each row.

    Raises:
        CorruptData: the bytes are not a value of the schema.
        pyarrow.ArrowException: a string is not UTF-8, or a decimal has too many digits.
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
    options = (node, *node.narrower)
    valid: Mask = np.logical_or.reduce([branches == option.branch for option in options])
    cursors.check(valid | (branches == node.null_branch), "a branch of the union")
    if not valid.any():
        return pa.nulls(len(cursors), node.arrow)
    if len(options) == 1 and valid.all():
        return read_value(cursors, node)
    parts, positions, count = [], np.zeros(len(cursors), np.intp), 0
    for option in options:
        rows = np.flatnonzero(branches == option.branch)
        picked = cursors.pick(rows)
        values = read_value(picked, option)
        parts.append(values.cast(node.arrow) if option is not node else values)
        cursors.put(rows, picked)
        positions[rows] = count + np.arange(len(rows))
        count += len(rows)
    return pa.concat_arrays(parts).take(pa.array(positions, mask=~valid))


def _struct(columns: Sequence[pa.Array], arrow: pa.DataType, row_count: int) -> pa.Array:
    return pa.Array.from_buffers(arrow, row_count, [None], 0, children=list(columns))


def _decode_blocks(cursors: Cursors, item: Node) -> tuple[pa.Array, pa.Array]:
    """Return the offsets and the items of the arrays of all rows."""
    rounds: list[tuple[Rows, pa.Array]] = []
    left = np.zeros(len(cursors), np.int64)
    rows = cursors.next_block(np.arange(len(cursors)), left)
    while len(rows) > _FEW_ROWS:
        picked = cursors.pick(rows)
        rounds.append((rows, _decode(picked, item)))
        cursors.put(rows, picked)
        rows = cursors.next_items(rows, left)
    if len(rows):
        rounds.append(_decode_rest(cursors, item, rows, left))
    return _in_row_order(rounds, item.arrow, len(cursors))


def _decode_rest(
    cursors: Cursors, item: Node, rows: Rows, left: npt.NDArray[np.int64]
) -> tuple[Rows, pa.Array]:
    """Return the row of each remaining item of a few rows, and the items."""
    starts = [_over_rest(cursors, item, row, left[row]) for row in rows.tolist()]
    row_of_item = np.repeat(rows, [len(of_row) for of_row in starts])
    items = Cursors(cursors.data, np.concatenate(starts), cursors.ends[row_of_item], cursors.path)
    return row_of_item, _decode(items, item)


def _over_rest(cursors: Cursors, item: Node, row: int, left: int) -> npt.NDArray[np.int64]:
    """Return the position of each remaining item of a row's array; move the cursor to its end."""
    walk = Walk(cursors.data.data, int(cursors.at[row]), int(cursors.ends[row]))
    try:
        starts = walk.over_rest(item, int(left))
    except BrokenDatum as broken:
        raise cursors.corrupt(walk.at, "values of the schema's types", str(broken)) from None
    cursors.at[row] = walk.at
    return np.array(starts, np.int64)


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
        positions = cursors.longs()
        cursors.check((positions >= 0) & (positions < len(node.symbols)), "a symbol of the enum")
        return pa.array(node.symbols, pa.string()).take(pa.array(positions))
    if pa.types.is_decimal(node.arrow):
        is_fixed = node.kind == "fixed"
        unscaled = cursors.fixed(node.size_bytes) if is_fixed else cursors.decimals()
        return decimals_from(unscaled, node.arrow)
    if node.kind in ("string", "bytes"):
        return cursors.strings().cast(node.arrow)
    return cursors.fixed_values(node.arrow)
