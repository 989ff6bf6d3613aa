"""Converts partition values to paths, and rejects paths that are not allowed.

Source: ``PartitionPathEncodeUtils`` and ``KeyGenUtils.getRecordPartitionPath`` of Apache Hudi
1.2.0. Hudi rejects only ``..``. Lakemark also rejects a path if some store, or some reader of the
table, would not find it. The following paths failed in tests with Apache Hudi 1.2.0, and are
rejected:

- ``.hoodie…``: Hudi's own folders and files;
- ``.….crc``: Hadoop's local file system treats such a folder as a checksum file and hides it
  (``isChecksumFile`` of ``ChecksumFileSystem``), so Hudi's listing does not find its rows;
- ``:`` in the first folder: ``StoragePath`` treats the text before it as the scheme of a URI, and
  then cannot write or read the table;
- ``=…`` and ``…=``: Spark finds a partition column without a name or without a value, and fails to
  read the whole table (``PartitioningUtils.parsePartitionColumn``);
- ``__all_partitions__``: the key under which the metadata table lists all partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.file_slice import ALL_PARTITIONS
from lakemark.storage.storage import check_path

#: Folder of the records whose partition value is null or empty.
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

#: This folder before table version 5.
OLD_DEFAULT_PARTITION = "default"

#: Longest folder name that common file systems support, in bytes.
MAX_FOLDER_NAME_BYTES = 255

_ESCAPED = {c: f"%{c:02X}" for c in [*range(0x20), 0x7F, *b"\"#%'*/:=?\\{[]^"]}


def partition_paths(
    fields: Sequence[str],
    values: Sequence[pa.Array],
    *,
    hive_style: bool,
    url_encode: bool,
    nested_fields: Collection[str],
) -> pa.Array:
    """Return the partition path of each row, relative to the table; null if it is not allowed.

    Args:
        fields: the partition fields, outermost first.
        values: the values of each field, as strings.
        hive_style: whether folders are named ``field=value``.
        url_encode: whether characters with a meaning in paths are written ``%XX``.
        nested_fields: the fields in whose values a ``/`` that is not encoded creates nested
            folders. In the other fields, such a value is not allowed.
    """
    parts = [
        _folder_names(column, f"{field}=" if hive_style else "", url_encode, field in nested_fields)
        for field, column in zip(fields, values, strict=True)
    ]
    paths = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "/")
    return _by_distinct_value(paths, lambda path: path if _is_valid_path(path) else None)


def escape(value: str) -> str:
    """Escape as ``%XX`` the characters that Hive escapes in paths."""
    return value.translate(_ESCAPED)


def folder_name(value: str | None, prefix: str, url_encode: bool) -> str:
    """Return the folder name of a partition value; null and "" give the default folder.

    Args:
        value: value of a partition field, as a string.
        prefix: ``field=``, or "" if folders are named by the value alone.
        url_encode: whether characters with a meaning in paths are written ``%XX``.
    """
    text = value or DEFAULT_PARTITION
    return prefix + (escape(text) if url_encode else text)


def _folder_names(values: pa.Array, prefix: str, url_encode: bool, slashes_nest: bool) -> pa.Array:
    def name(value: str) -> str | None:
        folder = folder_name(value, prefix, url_encode)
        return folder if slashes_nest or "/" not in folder.removeprefix(prefix) else None

    named = _by_distinct_value(values, name)
    return pc.if_else(values.is_null(), folder_name(None, prefix, url_encode), named)


def _is_valid_path(path: str) -> bool:
    try:
        folders = check_path(f"{path}/file").split("/")[:-1]
    except ValueError:
        return False
    if "\\" in path or ":" in folders[0] or path == ALL_PARTITIONS:
        return False
    return all(_is_valid_folder(name) for name in folders)


def _is_valid_folder(name: str) -> bool:
    is_checksum = name.startswith(".") and name.endswith(".crc")
    column, equals, value = name.partition("=")
    is_half_a_column = bool(equals) and not (column and value)
    if name.startswith(".hoodie") or is_checksum or is_half_a_column:
        return False
    return len(name.encode()) <= MAX_FOLDER_NAME_BYTES


def _by_distinct_value(values: pa.Array, convert: Callable[[str], str | None]) -> pa.Array:
    """Convert each value, calling ``convert`` once per distinct value; null stays null."""
    encoded = values.dictionary_encode()
    converted = [convert(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(converted, pa.string()).take(encoded.indices)
