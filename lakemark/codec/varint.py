"""Integers of variable length: seven bits a byte, lowest first, the high bit on all but the last.

Columns of them are written by ``avro_binary``; here they are encoded one by one.
"""

from __future__ import annotations

_LAST_SHORT = 0x7F
_SHORT = [bytes([value]) for value in range(_LAST_SHORT + 1)]


def unsigned(value: int) -> bytes:
    """Return an integer from 0 as Protocol Buffers writes it."""
    if value <= _LAST_SHORT:
        return _SHORT[value]
    digits = bytearray()
    while value > _LAST_SHORT:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def zigzag(value: int) -> bytes:
    """An integer of 64 bits as Avro writes an ``int`` or ``long``: small ones of any sign short."""
    return unsigned((value << 1) ^ (value >> 63))
