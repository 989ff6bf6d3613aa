"""Finds the pipeline files of a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from streamer.config.errors import ConfigError, Problem

_SUFFIXES = (".yaml", ".yml")


def is_folder(location: str) -> bool:
    """Return whether the location is a local folder."""
    return "://" not in location and Path(location).is_dir()


def find_files(locations: Sequence[str]) -> list[str]:
    """Return the pipeline files at the given locations, in order.

    Args:
        locations: files (local paths or URLs) and local folders. A folder contributes its files
            ``*.yaml`` and ``*.yml``, sorted by name, except hidden files and subfolders.

    Raises:
        ConfigError: a folder has no pipeline file, or a file is named twice.
    """
    files = [file for location in locations for file in _files_at(location)]
    repeated = sorted({file for file in files if files.count(file) > 1})
    if repeated:
        raise ConfigError([Problem(file, "the file is named twice") for file in repeated])
    return files


def _files_at(location: str) -> Iterator[str]:
    if not is_folder(location):
        yield location
        return
    found = sorted(
        str(path)
        for path in Path(location).iterdir()
        if path.suffix in _SUFFIXES and not path.name.startswith(".") and path.is_file()
    )
    if not found:
        raise ConfigError([Problem(location, "the folder has no file *.yaml or *.yml")])
    yield from found
