"""Formats numbers and sizes for messages."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 commit`` and ``2 batches``."""
    plural = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{plural}"


def size_text(size_bytes: int) -> str:
    """Return a size with its unit, such as ``1.5 MiB``."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
