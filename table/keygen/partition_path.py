"""Partition paths: values into folder names, and which of them may become folders.

Source: ``PartitionPathEncodeUtils`` and ``KeyGenUtils.getRecordPartitionPath`` of Apache Hudi
1.2.0. Hudi itself refuses only ``..``; here a path is refused whenever some store, or some reader
of the table, would not find it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from table.storage.storage import check_path

#: Folder of the records whose partition value is null or empty.
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

#: Longest name of a folder on the file systems in use, in bytes.
MAX_FOLDER_NAME_BYTES = 255

_ESCAPED = {c: f"%{c:02X}" for c in [*range(0x20), 0x7F, *b"\"#%'*/:=?\\{[]^"]}


def partition_paths(
    fields: Sequence[str],
    values: Sequence[pa.Array],
    *,
    hive_style: bool,
    url_encode: bool,
    slashes_nest: bool,
) -> pa.Array:
    """One path per row, from the root of the table; null where none may be made.

    Args:
        fields: the partition fields, outermost first.
        values: their values as strings, one array for each field.
        hive_style: folders are named ``field=value``.
        url_encode: characters with a meaning in paths are written ``%XX``.
        slashes_nest: a ``/`` that is not encoded makes folders inside folders.
    """
    parts = [
        _folder_names(column, f"{field}=" if hive_style else "", url_encode, slashes_nest)
        for field, column in zip(fields, values, strict=True)
    ]
    paths = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "/")
    return _by_distinct_value(paths, lambda path: path if _may_be_a_path(path) else None)


def escape(value: str) -> str:
    """``value`` with the characters that Hive escapes in paths written ``%XX``."""
    return value.translate(_ESCAPED)


def _folder_names(values: pa.Array, prefix: str, url_encode: bool, slashes_nest: bool) -> pa.Array:
    def name(value: str) -> str | None:
        text = escape(value) if url_encode else value
        return prefix + text if slashes_nest or "/" not in text else None

    named = _by_distinct_value(values, lambda value: name(value or DEFAULT_PARTITION))
    return pc.if_else(values.is_null(), prefix + DEFAULT_PARTITION, named)


def _may_be_a_path(path: str) -> bool:
    try:
        folders = check_path(f"{path}/file").split("/")[:-1]
    except ValueError:
        return False
    return "\\" not in path and all(_may_be_a_folder(name) for name in folders)


def _may_be_a_folder(name: str) -> bool:
    return not name.startswith(".hoodie") and len(name.encode()) <= MAX_FOLDER_NAME_BYTES


def _by_distinct_value(values: pa.Array, convert: Callable[[str], str | None]) -> pa.Array:
    """``convert`` of each value, called once for each distinct one; null stays null."""
    encoded = values.dictionary_encode()
    converted = [convert(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(converted, pa.string()).take(encoded.indices)
