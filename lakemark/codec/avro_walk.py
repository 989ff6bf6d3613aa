"""Steps over Avro values one by one, and reports what is wrong with an invalid value.

This module is used for values that cannot be read as columns: to find the error in values that the
column reader has refused, and to find the array items of the few rows that have many items. It
accepts exactly the values that ``avro_rows`` reads, as ``tests/property/test_avro_decoder.py``
verifies.
"""

from __future__ import annotations

from array import array
from typing import NoReturn

import pyarrow as pa

from lakemark.codec.avro_nodes import Node

#: Longest accepted unscaled value of a decimal in bytes, leading zeros included.
LONGEST_DECIMAL = 64

_LONGEST_VARINT = 10
_INT32 = range(-(2**31), 2**31)
_INT64_MASK = 2**64 - 1
_FLOAT_BYTES = {"float": 4, "double": 8}


class BrokenDatum(ValueError):
    """The bytes are not a value of their schema."""

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self._fault, self._path = fault, ""

    def __str__(self) -> str:
        return f"field {self._path!r}: {self._fault}" if self._path else self._fault

    def add_parent(self, part: str) -> None:
        """Prepend a component to the path of the invalid value.

        Args:
            part: name of the field that contains the value, or ``[]`` for an item of an array.
        """
        dot = "." if self._path and not self._path.startswith("[") else ""
        self._path = f"{part}{dot}{self._path}"


class Walk:
    """Steps over values without decoding them. Each step may raise ``BrokenDatum``.

    Attributes:
        at: position of the next value in the data.
    """

    def __init__(self, data: memoryview, at: int, end: int) -> None:
        self._data, self.at, self._end = data, at, end

    def over(self, node: Node) -> None:
        """Step over one value, which may be null."""
        chosen = self.chosen(node)
        if chosen is not None:
            self.over_value(chosen)

    def chosen(self, node: Node) -> Node | None:
        """Step over the branch number of a union, if there is one; return the type of the value.

        Returns:
            The type of the value that follows; None if the value is null.
        """
        if node.branch is None:
            return node
        branch = self._long()
        chosen = node.of_branch(branch)
        if chosen is None and branch != node.null_branch:
            _refuse(f"the union has no branch {branch}")
        return chosen

    def over_value(self, node: Node) -> None:
        """Step over a value whose branch number, if it is in a union, was already read."""
        if node.kind == "record":
            self._over_record(node)
        elif node.kind in ("array", "map"):
            self._over_items(node)
        else:
            self._over_leaf(node)

    def over_rest(self, item: Node, count: int) -> array[int]:
        """Step over the remaining items of an array; return the position of each item.

        Args:
            item: type of the items.
            count: number of items left in the current block.
        """
        starts = array("q")
        while count:
            for _ in range(count):
                starts.append(self.at)
                self.over(item)
            count = self._block()
        return starts

    def over_end(self) -> None:
        """Check that no data is left."""
        left = self._end - self.at
        if left:
            _refuse(f"{left} bytes follow the record")

    def _over_record(self, node: Node) -> None:
        for index, child in enumerate(node.children):
            try:
                self.over(child)
            except BrokenDatum as broken:
                broken.add_parent(node.arrow.field(index).name)
                raise

    def _over_items(self, node: Node) -> None:
        """Step over the items of an array, or the keys and values of a map."""
        while count := self._block():
            try:
                for _ in range(count):
                    for child in node.children:
                        self.over(child)
            except BrokenDatum as broken:
                broken.add_parent("[]")
                raise

    def _block(self) -> int:
        """Read the header of an array's next block; return its number of items, 0 at the end."""
        count = self._long()
        if count < 0:
            self._long()  # size of the block in bytes, for readers that skip the block
            count = -count
        left = self._end - self.at
        if count > left:
            _refuse(f"{count} items do not fit the remaining {left} bytes")
        return count

    def _over_leaf(self, node: Node) -> None:
        kind = node.kind
        if kind == "long":
            self._long()
        elif kind == "int":
            value = self._long()
            if value not in _INT32:
                _refuse(f"{value} is not an int")
        elif kind == "string":
            self._over_string()
        elif kind in _FLOAT_BYTES:
            self._take(_FLOAT_BYTES[kind])
        elif kind == "boolean":
            if self._take(1)[0] > 1:
                _refuse("a boolean is 0 or 1")
        elif kind == "enum":
            self._over_enum(node)
        else:
            self._over_bytes(node)

    def _over_string(self) -> None:
        try:
            str(self._take(self._length()), "utf-8")
        except UnicodeDecodeError:
            _refuse("the text is not UTF-8")

    def _over_enum(self, node: Node) -> None:
        index = self._long()
        if not 0 <= index < len(node.symbols):
            _refuse(f"the enum has no symbol {index}")

    def _over_bytes(self, node: Node) -> None:
        """Step over ``bytes`` or ``fixed``, and check the digits if it is a decimal."""
        digits = self._take(node.size_bytes if node.kind == "fixed" else self._length())
        if not pa.types.is_decimal(node.arrow):
            return
        if node.kind == "bytes" and not 0 < len(digits) <= LONGEST_DECIMAL:
            _refuse(f"a decimal has 1 to {LONGEST_DECIMAL} bytes, not {len(digits)}")
        unscaled = int.from_bytes(digits, "big", signed=True)
        if abs(unscaled) >= 10**node.arrow.precision:
            _refuse(f"the decimal has more than {node.arrow.precision} digits")

    def _length(self) -> int:
        length = self._long()
        left = self._end - self.at
        if not 0 <= length <= left:
            _refuse(f"a value of {length} bytes does not fit the remaining {left} bytes")
        return length

    def _take(self, size_bytes: int) -> memoryview:
        end = self.at + size_bytes
        if end > self._end:
            _refuse(_TOO_EARLY)
        taken, self.at = self._data[self.at : end], end
        return taken

    def _long(self) -> int:
        value = shift = 0
        for at in range(self.at, min(self.at + _LONGEST_VARINT, self._end)):
            digit = self._data[at]
            value |= (digit & 0x7F) << shift
            if digit < 0x80:
                self.at = at + 1
                value &= _INT64_MASK
                return (value >> 1) ^ -(value & 1)
            shift += 7
        is_long = self.at + _LONGEST_VARINT <= self._end
        _refuse(_TOO_LONG if is_long else _TOO_EARLY)


_TOO_EARLY = "the value ends too early"
_TOO_LONG = f"an integer of more than {_LONGEST_VARINT} bytes"


def _refuse(fault: str) -> NoReturn:
    raise BrokenDatum(fault) from None
