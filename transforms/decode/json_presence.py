"""Finds JSON objects that have a field, even if the field is null; decoded columns hide this.

If the quoted name of the field does not occur in an object, the object does not have the field. If
it occurs, it may also be a value or the name of a nested field. So the names of the object must be
read one by one. There are two shortcuts. If the object has no backslash, a name can be written in
only one way. If it has only one opening brace, all names are at the top level.
"""

from __future__ import annotations

import json
import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.decode.json_scanner import find_names

Mask = npt.NDArray[np.bool_]

_BLANKS = r"[ \t\r\n]*"

#: Characters that separate the strings of an object. A name that contains one of them, with quotes
#: around it, could match the end of one string and the start of the next.
_BETWEEN_TEXTS = re.compile(r"[:,]")


def find_present(objects: pa.Array | pa.ChunkedArray, name: str) -> Mask:
    """Return which objects have a top-level field with this name.

    Args:
        objects: valid JSON objects in UTF-8, as strings or binary, without nulls.
        name: the name of the field, without JSON escapes.
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
        present[row] = name in find_names(texts[row].as_py())
    return present


def _to_mask(booleans: pa.Array) -> Mask:
    mask: Mask = booleans.to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask
