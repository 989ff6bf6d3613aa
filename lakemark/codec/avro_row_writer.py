"""Converts the columns of a batch to pieces of encoded rows (``avro_binary``).

A field of a nested record is written only in rows where that record is not null. The mask ``here``
flags these rows. The items of all arrays of a column are encoded as rows, and joined. The items of
one array follow each other in the result, so they are one byte string without another copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.avro_binary import (
    Mask,
    Piece,
    constant,
    decimals,
    fixed,
    fixed_decimals,
    join,
    only,
    scalars,
    strings,
    varint,
)
from lakemark.codec.avro_nodes import Node, entry_of
from lakemark.codec.byte_strings import ByteStrings
from lakemark.errors import InvalidRecords


def lay_out(batch: pa.RecordBatch, root: Node) -> list[Piece]:
    """Return the pieces that, joined row by row, encode the rows of a batch.

    Raises:
        InvalidRecords: a column has a null that the schema does not allow, or a value that is not
            a symbol of its enum.
    """
    everywhere = np.ones(batch.num_rows, np.bool_)
    return [
        piece
        for column, node, name in zip(batch.columns, root.children, batch.schema.names, strict=True)
        for piece in _encode(column, node, everywhere, name)
    ]


def _encode(column: pa.Array, node: Node, here: Mask, name: str) -> list[Piece]:
    """Return the pieces of a column; rows for which ``here`` is false get no bytes."""
    valid = here & np.asarray(column.is_valid()) if column.null_count else here
    if node.null_branch is None and not np.array_equal(valid, here):
        message = f"column {name} has a null, which its schema does not allow"
        raise InvalidRecords(message)
    value = _encode_value(column, node, valid, name)
    if node.branch is None:
        return value
    if valid is here:
        branches = constant(bytes([node.branch << 1]), len(column))
    else:
        branches = varint(np.where(valid, node.branch, node.null_branch or 0))
    return [only(branches, here), *value]


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
        entry = entry_of(node)
        return _encode_blocks(column.cast(pa.list_(entry.arrow)), entry, here, name)
    return [only(piece, here) for piece in _encode_leaf(column, node)]


def _encode_leaf(column: pa.Array, node: Node) -> list[Piece]:
    if node.kind == "enum":
        return [scalars(_symbol_places(column, node.symbols))]
    if pa.types.is_decimal(node.arrow):
        if node.kind == "fixed":
            return [fixed_decimals(column, node.size_bytes)]
        return decimals(column)
    if node.kind == "fixed":
        return [fixed(column)]
    if node.kind in ("string", "bytes"):
        return strings(column)
    return [scalars(column)]


def _symbol_places(column: pa.Array, symbols: Sequence[str]) -> pa.Array:
    positions = pc.index_in(column, pa.array(symbols, column.type))
    if positions.null_count > column.null_count:
        message = f"a value is not among the enum's symbols {list(symbols)}"
        raise InvalidRecords(message)
    return positions


def _encode_blocks(lists: pa.ListArray, item: Node, here: Mask, name: str) -> list[Piece]:
    """Return the pieces of arrays: the number of items, the items, and 0 for the end.

    An empty array is only the 0.
    """
    items = lists.flatten()
    counts = np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
    ends = np.cumsum(counts)
    everywhere = np.ones(len(items), np.bool_)
    datums = join(_encode(items, item, everywhere, name))
    bounds = datums.offsets[np.concatenate([[0], ends])]
    return [
        only(varint(counts), here & (counts > 0)),
        only(ByteStrings(datums.data, bounds).to_arrow(), here),
        only(constant(b"\x00", len(lists)), here),
    ]
