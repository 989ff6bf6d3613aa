"""xxHash64 of single byte strings, by which the metadata table names columns and partitions.

Written out for few and short values, such as a column's name; not meant for record keys.
Source: the xxHash specification, "XXH64 algorithm description".
"""

from __future__ import annotations

import struct

_MASK = (1 << 64) - 1
_PRIME_1 = 0x9E3779B185EBCA87
_PRIME_2 = 0xC2B2AE3D27D4EB4F
_PRIME_3 = 0x165667B19E3779F9
_PRIME_4 = 0x85EBCA77C2B2AE63
_PRIME_5 = 0x27D4EB2F165667C5
_STRIPE_BYTES = 32


def xxhash64(data: bytes, seed: int = 0) -> int:
    """The hash, unsigned.

    Args:
        data: bytes to hash.
        seed: taken modulo 2**64, so a negative Java long may be given as it is.
    """
    seed &= _MASK
    striped = len(data) - len(data) % _STRIPE_BYTES
    hashed = _stripes(data[:striped], seed) if striped else (seed + _PRIME_5) & _MASK
    hashed = (hashed + len(data)) & _MASK
    return _avalanche(_tail(hashed, data[striped:]))


def _stripes(data: bytes, seed: int) -> int:
    lanes = [seed + _PRIME_1 + _PRIME_2, seed + _PRIME_2, seed, seed - _PRIME_1]
    for stripe in struct.iter_unpack("<4Q", data):
        lanes = [_round(lane, word) for lane, word in zip(lanes, stripe, strict=True)]
    rotations = zip(lanes, (1, 7, 12, 18), strict=True)
    hashed = sum(_rotate(lane & _MASK, bits) for lane, bits in rotations) & _MASK
    for lane in lanes:
        hashed = ((hashed ^ _round(0, lane)) * _PRIME_1 + _PRIME_4) & _MASK
    return hashed


def _tail(hashed: int, data: bytes) -> int:
    """The last bytes, fewer than a stripe: eight at a time, then four, then one by one."""
    at = 0
    while at + 8 <= len(data):
        hashed ^= _round(0, int.from_bytes(data[at : at + 8], "little"))
        hashed = (_rotate(hashed, 27) * _PRIME_1 + _PRIME_4) & _MASK
        at += 8
    if at + 4 <= len(data):
        hashed ^= (int.from_bytes(data[at : at + 4], "little") * _PRIME_1) & _MASK
        hashed = (_rotate(hashed, 23) * _PRIME_2 + _PRIME_3) & _MASK
        at += 4
    for byte in data[at:]:
        hashed ^= (byte * _PRIME_5) & _MASK
        hashed = (_rotate(hashed, 11) * _PRIME_1) & _MASK
    return hashed


def _avalanche(hashed: int) -> int:
    hashed = ((hashed ^ (hashed >> 33)) * _PRIME_2) & _MASK
    hashed = ((hashed ^ (hashed >> 29)) * _PRIME_3) & _MASK
    return hashed ^ (hashed >> 32)


def _round(lane: int, word: int) -> int:
    return (_rotate((lane + word * _PRIME_2) & _MASK, 31) * _PRIME_1) & _MASK


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK
