"""Which JSON objects have a field, be it null: what a decoded column does not tell.

A text in quotes that stands nowhere in an object is none of its names. One that does may still be
a value, or the name of a field further in. So an object is read token by token, unless its bytes
tell: without a backslash each text is spelled in one way only, and with a single brace all names
are at the top.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]

_BLANKS = r"[ \t\r\n]*"
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:]', re.DOTALL)

#: What stands between two texts of an object; a name of these alone may seem to be quoted there.
_BETWEEN_TEXTS = re.compile(r"[:,]")


def find_present(objects: pa.Array | pa.ChunkedArray, name: str) -> Mask:
    """Which objects have a field of this name at the top.

    Args:
        objects: JSON objects in UTF-8, as strings or binary; none is null or broken.
        name: of the field, as it is once unescaped.
    """
    if isinstance(objects, pa.ChunkedArray):
        objects = objects.combine_chunks()
    texts = objects.cast(pa.string())
    quoted = json.dumps(name, ensure_ascii=False)
    is_quoted = _to_mask(pc.match_substring(texts, quoted))
    is_escaped = _to_mask(pc.match_substring(texts, "\\"))
    present = is_quoted & ~is_escaped
    unclear = is_quoted | is_escaped
    if not _BETWEEN_TEXTS.search(name):
        flat = np.flatnonzero(present & (pc.count_substring(texts, "{").to_numpy() == 1))
        pattern = re.escape(quoted) + _BLANKS + ":"
        found = pc.match_substring_regex(texts.take(pa.array(flat)), pattern)
        present[flat], unclear[flat] = _to_mask(found), False
    for row in np.flatnonzero(unclear).tolist():
        present[row] = name in _top_names(texts[row].as_py())
    return present


def _top_names(text: str) -> Iterator[str]:
    """Names of the fields of an object, unescaped; however deep its values are."""
    depth, last = 0, ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in "{[":
            depth += 1
        elif token in "}]":
            depth -= 1
        elif token == ":" and depth == 1:
            yield json.loads(last) if "\\" in last else last[1:-1]
        elif depth == 1:
            last = token


def _to_mask(booleans: pa.Array) -> Mask:
    mask: Mask = booleans.to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask
