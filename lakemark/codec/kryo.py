"""Reads the values of a byte string that Kryo 4 has serialized.

Kryo does not describe objects: the reader must know the fields of a class, which are stored in the
alphabetical order of their names. The values have these forms::

    number      seven bits per byte, lowest first; the high bit is set in all bytes but the last. A
                long has at most nine bytes, and the ninth has eight bits. Numbers that may be
                negative are in zigzag encoding.
    string      if the first byte is below 0x80: ASCII characters, the last one with its high bit
                set. Otherwise the number of UTF-16 code units plus 1 (0 is null), then each unit
                in one to three bytes as in UTF-8. The first byte of this number has two flags, 0x80
                and "more bytes follow" (0x40), and six bits.
    class       0 for null; 1 for a class by name: the number of the name, and the name as a string
                where it occurs first; otherwise the class that Kryo registers under this number - 2
    object      0 for null; 1 for a new object, whose fields follow; otherwise the earlier object
                with this number - 2, counted in the order in which objects begin. Boxed numbers are
                not objects: they are stored without this prefix.

Source: ``Kryo``, ``Input``, ``DefaultClassResolver``, ``MapReferenceResolver`` and
``DefaultSerializers`` of Kryo 4.0.2 with its default settings, which ``SerializationUtils`` of
Apache Hudi uses.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import TypeVar

from lakemark.errors import CorruptData, Unsupported

T = TypeVar("T")

#: The classes that Kryo registers itself, by number.
_REGISTERED = {
    0: "java.lang.Integer",
    1: "java.lang.String",
    2: "java.lang.Float",
    3: "java.lang.Boolean",
    4: "java.lang.Byte",
    5: "java.lang.Character",
    6: "java.lang.Short",
    7: "java.lang.Long",
    8: "java.lang.Double",
}
_LAST_OF_ASCII = re.compile(rb"[\x80-\xff]")


class KryoInput:
    """Reads values from front to back.

    Every method raises ``CorruptData`` if the bytes end early, or are not such a value.
    """

    def __init__(self, data: bytes, path: str) -> None:
        self._data, self._path, self._at = data, path, 0
        self._class_names: list[str] = []
        self._objects: list[object] = []

    @property
    def remaining_bytes(self) -> int:
        """Number of bytes that are not read yet."""
        return len(self._data) - self._at

    def corrupt(self, *, expected: str, actual: str) -> CorruptData:
        """Return the error to raise if a value violates the format."""
        return CorruptData(self._path, self._at, expected, actual)

    def byte(self) -> int:
        """Read one unsigned byte."""
        return self.take(1)[0]

    def take(self, size_bytes: int) -> bytes:
        """Read the next ``size_bytes`` bytes."""
        if not 0 <= size_bytes <= self.remaining_bytes:
            raise self.corrupt(
                expected=f"{size_bytes} bytes", actual=f"{self.remaining_bytes} bytes"
            )
        self._at += size_bytes
        return self._data[self._at - size_bytes : self._at]

    def unsigned(self) -> int:
        """Read a number that is never negative, of at most 32 bits."""
        return self._number(5)

    def int32(self) -> int:
        """Read an ``Integer``."""
        return self._zigzag(5, 32)

    def int64(self) -> int:
        """Read a ``Long``."""
        return self._zigzag(9, 64)

    def unsigned_int64(self) -> int:
        """Read a ``long`` that is rarely negative, without zigzag encoding."""
        value = self._number(9)
        return value - (1 << 64) if value >> 63 else value

    def float32(self) -> float:
        """Read a ``Float``."""
        value: float = struct.unpack(">f", self.take(4))[0]
        return value

    def float64(self) -> float:
        """Read a ``Double``."""
        value: float = struct.unpack(">d", self.take(8))[0]
        return value

    def boolean(self) -> bool:
        """Read a ``Boolean``."""
        return self.byte() == 1

    def string(self) -> str | None:
        """Read the content of a string."""
        first = self.byte()
        if first < 0x80:
            self._at -= 1
            return self._ascii()
        count = first & 0x3F
        if first & 0x40:
            count |= self._number(4) << 6
        return self._code_units(count - 1) if count else None

    def class_name(self) -> str | None:
        """Read the class of the next value; None for null.

        Raises:
            Unsupported: the class has a number that Kryo does not register itself.
        """
        number = self.unsigned()
        if number == 0:
            return None
        if number > 1:
            return self._registered(number - 2)
        name_id = self.unsigned()
        if name_id == len(self._class_names):
            self._class_names.append(self.string() or "")
        if name_id >= len(self._class_names):
            raise self.corrupt(expected="a class name that occurred", actual=f"name {name_id}")
        return self._class_names[name_id]

    def object(self, kind: type[T], read: Callable[[], T | None]) -> T | None:
        """Read an object of a known class; None for null.

        Args:
            kind: the Python type of the object.
            read: reads the content of a new object.
        """
        number = self.unsigned()
        if number == 0:
            return None
        if number == 1:
            place = len(self._objects)
            self._objects.append(None)
            value = read()
            self._objects[place] = value
            return value
        known = self._objects[number - 2] if number - 2 < len(self._objects) else None
        if not isinstance(known, kind):
            raise self.corrupt(
                expected=f"an earlier object of type {kind.__name__}", actual=f"object {number - 2}"
            )
        return known

    def _registered(self, number: int) -> str:
        if number in _REGISTERED:
            return _REGISTERED[number]
        message = (
            f"{self._path} has a Java object whose class has number {number} in the release of "
            "Apache Hudi that wrote it; compact the table with that release"
        )
        raise Unsupported(message)

    def _zigzag(self, most_bytes: int, bits: int) -> int:
        value = self._number(most_bytes)
        if value >> bits:
            raise self.corrupt(expected=f"a number of {bits} bits", actual=str(value))
        return (value >> 1) ^ -(value & 1)

    def _number(self, most_bytes: int) -> int:
        value = 0
        for place in range(most_bytes):
            digit = self.byte()
            if most_bytes == 9 and place == 8:
                return value | digit << 56
            value |= (digit & 0x7F) << 7 * place
            if digit < 0x80:
                return value
        raise self.corrupt(expected=f"a number of {most_bytes} bytes", actual="more bytes")

    def _ascii(self) -> str:
        last = _LAST_OF_ASCII.search(self._data, self._at)
        if last is None:
            raise self.corrupt(expected="the last character of a string", actual="the end")
        text = self.take(last.start() - self._at) + bytes([self.byte() & 0x7F])
        return text.decode("ascii")

    def _code_units(self, count: int) -> str:
        if count > self.remaining_bytes:
            raise self.corrupt(expected=f"{count} characters", actual=f"{self.remaining_bytes} B")
        text = self._data[self._at : self._at + count]
        if text.isascii():
            self._at += count
            return text.decode("ascii")
        units = b"".join(self._code_unit().to_bytes(2, "little") for _ in range(count))
        try:
            return units.decode("utf-16-le")
        except UnicodeDecodeError as error:
            raise self.corrupt(expected="a string in UTF-16", actual=str(error)) from error

    def _code_unit(self) -> int:
        first = self.byte()
        if first < 0x80:
            return first
        if first >> 5 == 0b110:
            return (first & 0x1F) << 6 | self._following()
        if first >> 4 == 0b1110:
            return (first & 0x0F) << 12 | self._following() << 6 | self._following()
        raise self.corrupt(expected="a character", actual=f"byte {first:#x}")

    def _following(self) -> int:
        return self.byte() & 0x3F
