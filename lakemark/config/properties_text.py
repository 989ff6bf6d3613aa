"""Reads and writes text in the syntax of ``java.util.Properties``.

``=`` and ``:`` inside values are not escaped, because hudi-rs does not unescape them and Java
accepts both forms. Characters outside ASCII are escaped, because Java reads the file as ISO-8859-1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

_ENTRY = re.compile(r"((?:\\.|[^\\ \t\f=:])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
#: Texts without a character that is escaped.
_PLAIN = re.compile(r"[ !-\[\]-~]*")
_NAMED_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN_ESCAPES = {**{text: f"\\{word}" for word, text in _NAMED_ESCAPES.items()}, "\\": "\\\\"}


def parse_properties(data: bytes) -> dict[str, str]:
    """Parse a file in the syntax of ``java.util.Properties``; comments are dropped.

    Java reads the bytes as ISO-8859-1. Other characters are written as escapes of their UTF-16
    units.
    """
    text = data.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")
    return dict(_entry(line) for line in _logical_lines(text.split("\n")))


def _logical_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the entries, each as one line.

    A backslash at the end of a line continues an entry, but not a comment.
    """
    begun = ""
    for line in lines:
        stripped = line.lstrip(" \t\f")
        if not begun and (not stripped or stripped[0] in "#!"):
            continue
        if (len(stripped) - len(stripped.rstrip("\\"))) % 2:
            begun += stripped[:-1]
        else:
            yield begun + stripped
            begun = ""
    if begun:
        yield begun


def _entry(line: str) -> tuple[str, str]:
    parts = _ENTRY.match(line)
    assert parts is not None, "the pattern matches any text"
    key, value = parts.groups()
    return _unescape(key), _unescape(value)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    resolved = _ESCAPE.sub(_resolve, text)
    return resolved.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _resolve(match: re.Match[str]) -> str:
    word = match.group(1)
    if word[0] == "u" and len(word) == 5:
        return chr(int(word[1:], 16))
    return _NAMED_ESCAPES.get(word, word)


def print_properties(values: Mapping[str, str], comment: str) -> bytes:
    """Encode properties, sorted by key, after a line with a comment."""
    lines = [f"{_escape_key(key)}={_escape(value)}" for key, value in sorted(values.items())]
    return "\n".join([f"#{comment}", *lines, ""]).encode()


def _escape_key(key: str) -> str:
    escaped = re.sub("[ =:]", r"\\\g<0>", _escape_characters(key))
    return f"\\{escaped}" if escaped.startswith(("#", "!")) else escaped


def _escape(value: str) -> str:
    rest = value.lstrip(" ")
    return "\\ " * (len(value) - len(rest)) + _escape_characters(rest)


def _escape_characters(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    return "".join(_WRITTEN_ESCAPES.get(char) or _in_ascii(char) for char in text)


def _in_ascii(char: str) -> str:
    """Escape a character outside ASCII as its UTF-16 units; return others unchanged."""
    if char.isascii():
        return char
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
