"""How many bytes of columns an Avro record becomes, known before it is read.

A value that is null takes its place in its columns all the same, those of a record's fields among
them, and may be a single byte of the datum. So an array of nulls can be a thousand times as large
in memory as it was on its way here.
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
    """Sizes of the records of one schema.

    Args:
        root: the schema's record; is kept.
    """

    def __init__(self, root: Node) -> None:
        self._root = root
        self._places = {id(node): _place_bytes(node) for node in _tree(root)}
        rates = [_growth(node) for node in _tree(root) if node.kind in ("array", "map")]
        self._growth = 1 + max(rates, default=0)  # one for the bytes of texts

    def at_most(self, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Bytes that no record of such a length exceeds, whatever is in it."""
        return self._places[id(self._root)] + lengths * self._growth

    def excess(self, datum: bytes, limit_bytes: int) -> str | None:
        """Why a record cannot be read within a limit, or not at all; None when it can."""
        try:
            _Measure(datum, self._places, limit_bytes).over(self._root)
        except BrokenDatum as broken:
            return str(broken)
        return None


class _Measure(Walk):
    """Steps over a datum until its columns would be too large."""

    def __init__(self, datum: bytes, places: dict[int, int], limit_bytes: int) -> None:
        super().__init__(memoryview(datum), 0, len(datum))
        self._places, self._limit_bytes = places, limit_bytes
        self._left_bytes = limit_bytes - len(datum)

    def over(self, node: Node) -> None:
        """As a ``Walk`` does."""
        chosen = self.chosen(node)
        if chosen is None or chosen.kind != "record":  # of a record, its fields are counted
            self._left_bytes -= self._places[id(node)]
        if self._left_bytes < 0:
            message = (
                f"its columns take more than the {self._limit_bytes} bytes of a record; see "
                "decode.record_limit_bytes"
            )
            raise BrokenDatum(message)
        if chosen is not None:
            self.over_value(chosen)


def _tree(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _tree(child)


def _place_bytes(node: Node) -> int:
    """What a value takes in its columns, a null too; the bytes of texts and items apart."""
    if node.kind == "record":
        return sum(map(_place_bytes, node.children))
    if node.kind == "enum":
        return _OFFSET_BYTES + max((len(symbol.encode()) for symbol in node.symbols), default=0)
    if pa.types.is_primitive(node.arrow) or node.kind == "fixed":
        return -(-int(node.arrow.bit_width) // 8)
    return 16 if pa.types.is_decimal(node.arrow) else _OFFSET_BYTES


def _growth(node: Node) -> int:
    """How many bytes of columns one byte of an array, or a map, becomes at most.

    Each byte belongs to the items around it, and counts for the innermost one alone.
    """
    places, bytes_ = sum(map(_place_bytes, node.children)), sum(map(_least_bytes, node.children))
    return -(-places // bytes_)


def _least_bytes(node: Node) -> int:
    """The length of the shortest datum; that of an array without items."""
    if node.null_branch is not None:
        return 1
    of_union = 0 if node.branch is None else 1
    if node.narrower:
        return of_union + 1
    if node.kind == "record":
        return of_union + sum(map(_least_bytes, node.children))
    return of_union + {"float": 4, "double": 8, "fixed": node.size_bytes}.get(node.kind, 1)
