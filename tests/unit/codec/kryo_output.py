"""Serializes deletes as Kryo 4 does, for tests of the reader; the bytes equal those of Java."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

_MODEL = "org.apache.hudi.common.model."
_KEY, _RECORD = f"{_MODEL}HoodieKey", f"{_MODEL}DeleteRecord"

#: The numbers under which Kryo registers a class.
_INTEGER, _STRING, _FLOAT, _BOOLEAN, _LONG, _DOUBLE = 0, 1, 2, 3, 7, 8


@dataclass(frozen=True)
class Long:
    """A ``java.lang.Long``; a Python int is an ``Integer``."""

    value: int


@dataclass(frozen=True)
class Float:
    """A ``java.lang.Float``; a Python float is a ``Double``."""

    value: float


Ordering = bool | int | Long | Float | float | str | Decimal | date | None


@dataclass
class KryoOutput:
    """Collects the bytes. Equal partition paths are one Java object if ``shares_paths`` is true."""

    shares_paths: bool = True
    parts: list[bytes] = field(default_factory=list)
    class_names: list[str] = field(default_factory=list)
    objects: int = 0
    paths: dict[str, int] = field(default_factory=dict)

    def keys(self, keys: Sequence[tuple[str | None, str | None]]) -> bytes:
        """Serialize an array of ``HoodieKey``: record keys with partition paths."""
        self._array(_KEY, len(keys))
        for record_key, path in keys:
            self._key(record_key, path)
        return b"".join(self.parts)

    def records(self, records: Sequence[tuple[str | None, str | None, Ordering]]) -> bytes:
        """Serialize an array of ``DeleteRecord``."""
        self._array(_RECORD, len(records))
        for record_key, path, ordering in records:
            self._object(_RECORD)
            self._key(record_key, path)
            self._ordering(ordering)
        return b"".join(self.parts)

    def _array(self, element: str, count: int) -> None:
        self._object(f"[L{element};")
        self._unsigned(count + 1)

    def _key(self, record_key: str | None, path: str | None) -> None:
        self._object(_KEY)
        if self.shares_paths and path in self.paths:
            self._unsigned(self.paths[path] + 2)
        else:
            if path is not None:
                self.paths[path] = self.objects
            self._text(path)
        self._text(record_key)

    def _ordering(self, value: Ordering) -> None:
        if value is None:
            self._unsigned(0)
        elif isinstance(value, bool):
            self._boxed(_BOOLEAN, bytes([value]))
        elif isinstance(value, int):
            self._boxed(_INTEGER, _zigzag(value, 5))
        elif isinstance(value, Long):
            self._boxed(_LONG, _zigzag(value.value, 9))
        elif isinstance(value, Float):
            self._boxed(_FLOAT, struct.pack(">f", value.value))
        elif isinstance(value, float):
            self._boxed(_DOUBLE, struct.pack(">d", value))
        elif isinstance(value, str):
            self._unsigned(_STRING + 2)
            self._text(value)
        elif isinstance(value, Decimal):
            self._object("java.math.BigDecimal")
            self._decimal(value)
        else:
            self._object("java.time.LocalDate")
            self.parts += [_varint(value.year, 5), bytes([value.month, value.day])]

    def _decimal(self, value: Decimal) -> None:
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        size_bytes = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
        self._unsigned(size_bytes + 1)
        self.parts += [unscaled.to_bytes(size_bytes, "big", signed=True), _zigzag(-exponent, 5)]

    def _boxed(self, number: int, content: bytes) -> None:
        self._unsigned(number + 2)
        self.parts.append(content)

    def _object(self, class_name: str) -> None:
        """Begin a new object, with its class."""
        self._unsigned(1)
        if class_name in self.class_names:
            self._unsigned(self.class_names.index(class_name))
        else:
            self._unsigned(len(self.class_names))
            self.class_names.append(class_name)
            self.parts.append(_string(class_name))
        self._new()

    def _text(self, value: str | None) -> None:
        if value is None:
            self._unsigned(0)
        else:
            self._new()
            self.parts.append(_string(value))

    def _new(self) -> None:
        self._unsigned(1)
        self.objects += 1

    def _unsigned(self, value: int) -> None:
        self.parts.append(_varint(value, 5))


def _string(text: str) -> bytes:
    units = struct.unpack(f"<{len(text.encode('utf-16-le')) // 2}H", text.encode("utf-16-le"))
    if 1 < len(units) < 64 and text.isascii():
        return text[:-1].encode() + bytes([ord(text[-1]) | 0x80])
    count = len(units) + 1
    head = [count & 0x3F | 0x80 | (0x40 if count >> 6 else 0)]
    rest = _varint(count >> 6, 5) if count >> 6 else b""
    return bytes(head) + rest + b"".join(chr(u).encode("utf-8", "surrogatepass") for u in units)


def _zigzag(value: int, most_bytes: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1, most_bytes)


def _varint(value: int, most_bytes: int) -> bytes:
    digits: list[int] = []
    while value > 0x7F and len(digits) < most_bytes - 1:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])
