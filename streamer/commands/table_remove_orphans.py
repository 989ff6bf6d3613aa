"""``lakemark table remove-orphans``: deletes files that no instant names."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Sequence

from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.operations.orphan_removal import find_orphans, remove_orphans
from lakemark.services.orphans import Orphan
from streamer.commands.service_table import open_for_service, show_work
from streamer.commands.table import Facts

_TABLE, _METADATA_TABLE, _SCRATCH = "the table", "the metadata table", "writers' files"


def execute(arguments: argparse.Namespace) -> int:
    """Print the orphans, or delete them: one row for each reason, or for each file.

    Raises:
        HudiError: the table cannot be read, the limit is too short, or a restore is pending.
    """
    table = open_for_service(arguments)
    is_run = arguments.step == "run"
    search = remove_orphans if is_run else find_orphans
    orphans = search(table, arguments.older_than)
    rows = _rows_of_files(orphans) if arguments.files else _totals(orphans)
    show_work(rows, arguments, "no orphans")
    return 0


def _rows_of_files(orphans: Iterable[Orphan]) -> list[Facts]:
    return [
        {
            "kept": not orphan.reason.is_clear,
            "reason": str(orphan.reason),
            "instant": orphan.instant,
            "bytes": orphan.size_bytes,
            "written at": orphan.modified_at.isoformat(timespec="seconds"),
            "file": orphan.path,
        }
        for orphan in orphans
    ]


def _totals(orphans: Iterable[Orphan]) -> list[Facts]:
    """Return one row for the orphans of each part of the table and each reason."""
    groups: defaultdict[tuple[str, str], list[Orphan]] = defaultdict(list)
    for orphan in orphans:
        groups[_part_of(orphan), str(orphan.reason)].append(orphan)
    return [_total(part, reason, group) for (part, reason), group in sorted(groups.items())]


def _total(part: str, reason: str, orphans: Sequence[Orphan]) -> Facts:
    oldest = min(orphans, key=lambda orphan: orphan.modified_at)
    return {
        "kept": not oldest.reason.is_clear,
        "part": part,
        "reason": reason,
        "files": len(orphans),
        "bytes": sum(orphan.size_bytes for orphan in orphans),
        "oldest": oldest.modified_at.isoformat(timespec="seconds"),
        "example": oldest.path,
    }


def _part_of(orphan: Orphan) -> str:
    inside = orphan.path.removeprefix(f"{METADATA_FOLDER}/")
    if inside.startswith(".hoodie/"):
        return _SCRATCH
    return _TABLE if inside == orphan.path else _METADATA_TABLE
