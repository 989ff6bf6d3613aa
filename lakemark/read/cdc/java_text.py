"""Prints columns of numbers, strings and bytes in the notation of Java's JSON writers.

A double is printed as the shortest text that parses to the same number, as ``Double.toString`` does
since Java 19. Older Java versions sometimes print one digit more.
"""

from __future__ import annotations

import binascii

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.byte_strings import ByteStrings, byte_strings

_SMALLEST_PLAIN, _LARGEST_PLAIN = 1e-3, 1e7
_DIGITS = r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<rest>[0-9]+))?(?:e(?P<power>[+-]?[0-9]+))?$"
_NOT_NUMBERS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def number_text(values: pa.Array) -> pa.Array:
    """Return the JSON of a column of floats or doubles; NaN and infinities are quoted."""
    plain = values.cast(pa.string())
    size = pc.abs(values)
    is_plain = pc.or_(
        pc.and_(pc.greater_equal(size, _SMALLEST_PLAIN), pc.less(size, _LARGEST_PLAIN)),
        pc.equal(size, 0),
    )
    has_point = pc.match_substring(plain, ".")
    pointed = pc.if_else(has_point, plain, pc.binary_join_element_wise(plain, ".0", ""))
    # A comparison with NaN is false, so NaN and infinities use the other branch.
    text = pc.if_else(is_plain, pointed, _scientific(plain))
    for word, quoted in _NOT_NUMBERS.items():
        text = pc.if_else(pc.equal(plain, word), quoted, text)
    return text


def quoted(strings: pa.Array, special: str, escapes: dict[str, str]) -> pa.Array:
    r"""Quote strings.

    Args:
        strings: a column of strings.
        special: characters that must be escaped, as a character class of RE2.
        escapes: escape sequences of some special characters; the others become ``\uXXXX``.
    """
    for character in _present(strings, special):
        written = escapes.get(character, f"\\u{ord(character):04X}")
        strings = pc.replace_substring(strings, character, written)
    return pc.binary_join_element_wise('"', strings, '"', "")


def base64_text(values: pa.Array) -> pa.Array:
    """Return the padded Base64 (RFC 4648, section 4) of a column of bytes, in quotation marks."""
    stored = byte_strings(pc.fill_null(_wide(values), b""))
    lengths = stored.lengths
    triples = (lengths + 2) // 3
    ends = np.cumsum(triples * 3)
    padded = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    padded[_byte_positions(ends - triples * 3, lengths)] = stored.data[
        _byte_positions(stored.offsets[:-1], lengths)
    ]
    letters = np.frombuffer(binascii.b2a_base64(padded.tobytes(), newline=False), np.uint8).copy()
    offsets = np.append(0, np.cumsum(triples * 4))
    missing = triples * 3 - lengths
    letters[offsets[1:][missing >= 1] - 1] = ord("=")
    letters[offsets[1:][missing == 2] - 2] = ord("=")
    texts = ByteStrings(letters, offsets).to_arrow().cast(pa.string())
    return pc.if_else(values.is_valid(), pc.binary_join_element_wise('"', texts, '"', ""), None)


def per_byte_text(values: pa.Array, words: pa.Array, separator: str) -> pa.Array:
    """Replace each byte by its word, one of 256, and join the words of each value."""
    stored = byte_strings(pc.fill_null(_wide(values), b""))
    lengths = stored.lengths
    used = stored.data[_byte_positions(stored.offsets[:-1], lengths)]
    offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int64())
    texts = pa.LargeListArray.from_arrays(offsets, words.take(pa.array(used)))
    return pc.if_else(values.is_valid(), pc.binary_join(texts, separator), None)


def _scientific(plain: pa.Array) -> pa.Array:
    """Return numbers as ``d.dddEn``, from their shortest text; null for any other text."""
    parts = pc.extract_regex(plain, _DIGITS)
    sign, whole = parts.field("sign"), parts.field("whole")
    # A group of the pattern that does not match is an empty string.
    digits = pc.binary_join_element_wise(whole, parts.field("rest"), "")
    significant = pc.ascii_ltrim(digits, "0")
    power_text = pc.if_else(pc.equal(parts.field("power"), ""), "0", parts.field("power"))
    power = pc.ascii_ltrim(power_text, "+").cast(pa.int32())
    zeros = pc.subtract(pc.binary_length(digits), pc.binary_length(significant))
    exponent = pc.subtract(pc.add(pc.subtract(pc.binary_length(whole), zeros), power), 1)
    shortest = pc.ascii_rtrim(significant, "0")
    rest = pc.utf8_slice_codeunits(shortest, 1)
    return pc.binary_join_element_wise(
        sign,
        pc.utf8_slice_codeunits(shortest, 0, 1),
        ".",
        pc.if_else(pc.equal(rest, ""), "0", rest),
        "E",
        exponent.cast(pa.string()),
        "",
    )


def _present(strings: pa.Array, special: str) -> list[str]:
    """Return the special characters that occur.

    The backslash comes first, because the escapes of other characters contain it.
    """
    concerned = strings.filter(pc.fill_null(pc.match_substring_regex(strings, special), False))
    if len(concerned) == 0:
        return []
    stored = byte_strings(concerned)
    text = stored.data[stored.offsets[0] : stored.offsets[-1]].tobytes().decode()
    characters = pa.array(sorted(set(text)))
    found: list[str] = characters.filter(pc.match_substring_regex(characters, special)).to_pylist()
    return sorted(found, key=lambda character: (character != "\\", character))


def _wide(values: pa.Array) -> pa.Array:
    return values.cast(pa.large_binary())


def _byte_positions(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the positions of all bytes in ranges that begin at ``starts``."""
    total = int(lengths.sum())
    shifts = starts - np.append(0, np.cumsum(lengths))[:-1]
    positions: npt.NDArray[np.int64] = np.arange(total) + np.repeat(shifts, lengths)
    return positions
