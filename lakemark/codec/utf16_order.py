"""The order of Java's strings, for strings in UTF-8.

Java compares UTF-16 units. In UTF-16, U+E000 to U+FFFF come after all characters that have four
bytes in UTF-8. In UTF-8 they come before them. All other characters have the same order in both.

So a sorted file of Apache Hudi may be sorted otherwise than one of lakemark, which sorts the bytes.
Source: ``String.compareTo`` of Java; ``HFileUtils.serializeRecordsToLogBlock`` of Apache Hudi
1.2.0, which sorts the keys of an HFile as strings and does not check the order of their bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

#: Returns bytes whose order is the order of the strings.
Order: TypeAlias = Callable[[bytes], bytes]

#: Translates each byte of UTF-8. The first bytes of U+E000 to U+FFFF, EE and EF, become greater
#: than F4, the largest first byte of four.
TO_UTF16_ORDER: Final = bytes(range(0xEE)) + b"\xf8\xf9" + bytes(range(0xF0, 0x100))

_UNCERTAIN: Final = re.compile(rb"[\xee-\xff]")


def utf16_order(text: bytes) -> bytes:
    """Return bytes that sort like the UTF-16 units of a text in UTF-8."""
    return text.translate(TO_UTF16_ORDER)


def is_order_certain(bounds: Iterable[bytes]) -> bool:
    """Return whether every text compares to each of these bounds alike in both orders.

    It does if no bound has a character from U+E000 on.
    """
    return _UNCERTAIN.search(b"".join(bounds)) is None


def possible_orders(bounds: Iterable[bytes]) -> tuple[Order, ...]:
    """Return the orders in which a file may be sorted whose blocks have these bounds."""
    return (_as_it_is,) if is_order_certain(bounds) else (_as_it_is, utf16_order)


def _as_it_is(text: bytes) -> bytes:
    return text
