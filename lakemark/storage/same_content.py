"""Compares the content of two files in bounded memory."""

from __future__ import annotations

from typing import IO

_CHUNK_BYTES = 8 << 20


def same_content(left: IO[bytes], right: IO[bytes]) -> bool:
    """Return whether two files have the same bytes from their current positions to their ends."""
    while True:
        ours, theirs = left.read(_CHUNK_BYTES), right.read(_CHUNK_BYTES)
        if ours != theirs:
            return False
        if not ours:
            return True
