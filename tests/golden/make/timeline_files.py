"""The file names of a table's timeline, to wait for instants and to name them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_COMPLETED = re.compile(r"(\d+)(?:_(\d+))?\.(commit|deltacommit|replacecommit)")
_REQUESTED = re.compile(r"(\d+)\.[a-z]+\.requested")


@dataclass(frozen=True, slots=True, order=True)
class CompletedWrite:
    """A completed write.

    Attributes:
        requested_at: the requested time of the instant.
        completed_at: the completion time, which is known from version 8 on.
        file_name: the name of its file on the timeline.
    """

    requested_at: str
    completed_at: str | None
    file_name: str


def completed_writes(table: Path) -> list[CompletedWrite]:
    """List the commits of every action on the active timeline, by requested time."""
    matches = (_COMPLETED.fullmatch(name) for name in _names(table))
    return sorted(CompletedWrite(m[1], m[2], m[0]) for m in matches if m is not None)


def requested_instants(table: Path) -> set[str]:
    """List the requested times of all instants of the active timeline, in any state."""
    matches = (_REQUESTED.fullmatch(name) for name in _names(table))
    return {match[1] for match in matches if match is not None}


def timeline_folder(table: Path) -> Path:
    """Return the folder of the active timeline, which depends on the layout version."""
    properties = table / ".hoodie" / "hoodie.properties"
    has_folder = properties.is_file() and "layout.version=2" in properties.read_text("utf-8")
    return table / ".hoodie" / "timeline" if has_folder else table / ".hoodie"


def _names(table: Path) -> list[str]:
    folder = timeline_folder(table)
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []
