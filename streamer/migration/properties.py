"""Reads property files as HoodieStreamer does.

The syntax is not that of Java's property files. A line is a name and a value, separated by ``=``
or, without ``=``, by a space. There are neither escapes nor continued lines. ``include=FILE`` reads
another file in its place. A later value of a name replaces an earlier one.
Source: ``DFSPropertiesConfiguration`` of Apache Hudi.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lakemark.errors import InvalidConfig
from streamer.config.load import read

_INCLUDE = re.compile(r"include ?=")
_SPACES = re.compile(r"\s+")

#: A name and its value.
Property = tuple[str, str]


def read_properties(location: str) -> list[Property]:
    """Read a property file and the files that it includes.

    Args:
        location: a path or a URL.

    Returns:
        The properties in the order of the files; a name may occur several times.

    Raises:
        ConfigError: a file cannot be read.
        InvalidConfig: a file includes itself.
        Retriable: the store does not answer.
    """
    return list(_of_file(location, ()))


def parse_property(text: str) -> Property | None:
    """Return the name and the value of a line; None if the line has none, which is ignored.

    Args:
        text: a line of a file, or the argument of ``--hoodie-conf``.
    """
    if text.startswith("#") or not ("=" in text or _SPACES.search(text)):
        return None
    line = _SPACES.sub(" ", text)
    name, _, value = line.partition("=" if "=" in line else " ")
    return (name.strip(), value.strip()) if name.strip() else None


def _of_file(location: str, including: tuple[str, ...]) -> Iterator[Property]:
    if location in including:
        message = f"{location} includes itself ({' -> '.join((*including, location))}); remove one"
        raise InvalidConfig(message)
    for line in read(location).splitlines():
        found = parse_property(line)
        if found is None:
            continue
        if _INCLUDE.match(line):
            yield from _of_file(_included(found[1], location), (*including, location))
        else:
            yield found


def _included(path: str, including: str) -> str:
    """Return the location of an included file: a full one, or one next to the including file."""
    if "://" in path or path.startswith("file:") or Path(path).is_absolute():
        return path
    folder, slash, _ = including.rpartition("/")
    return f"{folder}{slash}{path}"
