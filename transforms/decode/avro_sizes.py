"""Computes how many bytes the columns of an Avro record will take, before it is decoded.

In columns, a null takes as much memory as a value; for a record, this includes the columns of its
fields. But a null may be a single byte of the datum. So an array of nulls can be a thousand times
larger in memory than in its message.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.codec.avro_nodes import Node
from lakemark.codec.avro_walk import BrokenDatum, Walk

_OFFSET_BYTES = 4


class RecordSizes:
    """Computes the sizes of records that have the same schema.

    Args:
        root: the root of the schema, which is a record.
    """

    def __init__(self, root: Node) -> None:
        self._root = root
        self._column_bytes_of = {id(node): _column_bytes(node) for node in _walk_nodes(root)}
        rates = [_max_growth(node) for node in _walk_nodes(root) if node.kind in ("array", "map")]
        self._growth = 1 + max(rates, default=0)  # the 1 is for the bytes of texts

    def upper_bounds(self, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return an upper bound of the column bytes of records with these lengths."""
        return self._column_bytes_of[id(self._root)] + lengths * self._growth

    def find_excess(self, datum: bytes, limit_bytes: int) -> str | None:
        """Return why a record is invalid or exceeds a limit; None if neither is true."""
        try:
            _Measure(datum, self._column_bytes_of, limit_bytes).over(self._root)
        except BrokenDatum as broken:
            return str(broken)
        return None


class _Measure(Walk):
    """Walks over a datum, until it ends or its columns exceed the limit."""

    def __init__(self, datum: bytes, column_bytes_of: dict[int, int], limit_bytes: int) -> None:
        super().__init__(memoryview(datum), 0, len(datum))
        self._column_bytes_of, self._limit_bytes = column_bytes_of, limit_bytes
        self._remaining_bytes = limit_bytes - len(datum)

    def over(self, node: Node) -> None:
        """Walk over a value; see ``Walk``."""
        chosen = self.chosen(node)
        if chosen is None or chosen.kind != "record":  # a record's fields are counted instead
            self._remaining_bytes -= self._column_bytes_of[id(node)]
        if self._remaining_bytes < 0:
            message = (
                f"its columns take more than the {self._limit_bytes} bytes of a record; see "
                "decode.record_limit_bytes"
            )
            raise BrokenDatum(message)
        if chosen is not None:
            self.over_value(chosen)


def _walk_nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _walk_nodes(child)


def _column_bytes(node: Node) -> int:
    """Return the column bytes of a value or a null, without the bytes of texts and items."""
    if node.kind == "record":
        return sum(map(_column_bytes, node.children))
    if node.kind == "enum":
        return _OFFSET_BYTES + max((len(symbol.encode()) for symbol in node.symbols), default=0)
    if pa.types.is_primitive(node.arrow) or node.kind == "fixed":
        return -(-int(node.arrow.bit_width) // 8)
    return 16 if pa.types.is_decimal(node.arrow) else _OFFSET_BYTES


def _max_growth(node: Node) -> int:
    """Return the maximum number of column bytes per byte of an array or map.

    A byte of a nested item counts only for the innermost array or map.
    """
    column_bytes_of, bytes_ = (
        sum(map(_column_bytes, node.children)),
        sum(map(_min_datum_bytes, node.children)),
    )
    return -(-column_bytes_of // bytes_)


def _min_datum_bytes(node: Node) -> int:
    """Return the length of the shortest datum, in which arrays have no items."""
    if node.null_branch is not None:
        return 1
    branch_bytes = 0 if node.branch is None else 1
    if node.narrower:
        return branch_bytes + 1
    if node.kind == "record":
        return branch_bytes + sum(map(_min_datum_bytes, node.children))
    return branch_bytes + {"float": 4, "double": 8, "fixed": node.size_bytes}.get(node.kind, 1)
