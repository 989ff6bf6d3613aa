"""The manifests of an archive, and the names of the data files that they list.

``lsm_history`` describes the archive. Source: ``LSMTimeline`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from lakemark.errors import CorruptData

#: The file that contains the number of the newest manifest.
VERSION_FILE = "_version_"
#: The names of manifests begin with this text, and end with a number.
MANIFEST_PREFIX = "manifest_"
_MANIFEST = re.compile(rf"{MANIFEST_PREFIX}([0-9]+)")
_DATA_FILE = re.compile(r"([0-9]+)_([0-9]+)_([0-9]+)\.parquet")


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A data file that a manifest names.

    Attributes:
        name: the file's name in the history's folder.
        size_bytes: the file's size.
        first: the oldest requested time in the file, according to its name.
        last: the newest requested time in the file, according to its name.
        layer: 0 if an archival wrote the file; higher if files were merged into this file.
    """

    name: str
    size_bytes: int
    first: str
    last: str
    layer: int

    @classmethod
    def of(cls, first: str, last: str, layer: int, size_bytes: int) -> ManifestFile:
        """Return the file for a range of requested times."""
        return cls(f"{first}_{last}_{layer}.parquet", size_bytes, first, last, layer)

    @classmethod
    def parse(cls, name: str, size_bytes: int) -> ManifestFile | None:
        """Parse the name of a data file; None if the file is not a data file."""
        match = _DATA_FILE.fullmatch(name)
        if match is None:
            return None
        first, last, layer = match.groups()
        return cls(name, size_bytes, first, last, int(layer))


def is_data_file(name: str) -> bool:
    """Return whether a file name in the history's folder is that of a data file."""
    return _DATA_FILE.fullmatch(name) is not None


def manifest_versions(names: Iterable[str]) -> list[int]:
    """Return the numbers of the manifests among these files, oldest first."""
    matches = (_MANIFEST.fullmatch(name) for name in names)
    return sorted(int(match.group(1)) for match in matches if match)


def parse_manifest(data: bytes, path: str) -> list[ManifestFile]:
    """Return the data files that a manifest names.

    Raises:
        CorruptData: the content is not a manifest, or a name is not that of a data file.
    """
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptData(path, None, "a manifest as JSON", str(error)[:200]) from error
    entries = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(entries, list):
        raise _unlike_manifest(path, data)
    return [_parse_entry(entry, path, data) for entry in entries]


def _parse_entry(entry: object, path: str, data: bytes) -> ManifestFile:
    name = entry.get("fileName") if isinstance(entry, dict) else None
    size_bytes = entry.get("fileLen", 0) if isinstance(entry, dict) else None
    if not isinstance(name, str) or not isinstance(size_bytes, int):
        raise _unlike_manifest(path, data)
    file = ManifestFile.parse(name, size_bytes)
    if file is None:
        raise CorruptData(path, None, "file names of the form first_last_layer.parquet", repr(name))
    return file


def _unlike_manifest(path: str, data: bytes) -> CorruptData:
    return CorruptData(path, None, '{"files": [{"fileName": …}, …]}', repr(data[:80]))
