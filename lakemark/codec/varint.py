"""Encodes single integers with variable length (``avro_binary`` encodes whole columns).

Each byte has seven bits, lowest first. The high bit is set in all bytes but the last.
"""

from __future__ import annotations

_LAST_SHORT = 0x7F
_SHORT = [bytes([value]) for value in range(_LAST_SHORT + 1)]


def unsigned(value: int) -> bytes:
    """Encode a non-negative integer as Protocol Buffers does."""
    if value <= _LAST_SHORT:
        return _SHORT[value]
    digits = bytearray()
    while value > _LAST_SHORT:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def zigzag(value: int) -> bytes:
    """Encode an integer of 64 bits as Avro encodes ``int`` and ``long``.

    Numbers near 0, positive or negative, take few bytes.
    """
    return unsigned((value << 1) ^ (value >> 63))
