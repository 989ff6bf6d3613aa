"""Detects base files of compaction attempts that did not complete.

A paused executor may write a base file after another attempt to execute the same compaction has
completed. Both files have the same instant and file id, so both count as committed. The metadata of
the completed commit names the valid file. This metadata is read only if there are several such
files. Apache Hudi instead reads the file that it lists last. That is harmless, because both files
contain the same rows: the plan determines which rows are merged.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache

from lakemark.errors import CorruptData
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_slice import BaseFile
from lakemark.timeline.archived_timeline import ArchivedTimeline
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile

#: Partition path, file id and instant of a base file.
_Slot = tuple[str, str, str]

_log = logging.getLogger(__name__)


def find_lost_attempts(
    store: TimelineStore, timeline: Timeline, files: Mapping[str, Collection[DataFile]]
) -> set[str]:
    """Return the paths of base files that were written by attempts that did not complete.

    Args:
        store: reads the timeline's instants.
        timeline: the active timeline.
        files: data files by partition path, as storage lists them.

    Raises:
        SnapshotChanged: the archive was rewritten meanwhile; load the timeline again.
    """
    bases = [file for some in files.values() for file in some if isinstance(file, BaseFile)]
    counts = Counter(map(_slot, bases))
    doubtful = [base for base in bases if counts[_slot(base)] > 1]
    lost: set[str] = set()
    load_archived = cache(store.load_archived)
    for instant in sorted({base.name.instant for base in doubtful}):
        if timeline.is_committed(instant):
            lost |= set(_find_unlisted(store, timeline, instant, doubtful, load_archived))
    if lost:
        _log.warning("%s are skipped: another attempt to compact completed", sorted(lost))
    return lost


def without_paths(
    files: Mapping[str, list[DataFile]], paths: Collection[str]
) -> dict[str, list[DataFile]]:
    """Return the files by partition path, without the files at ``paths``."""
    return {name: [file for file in some if file.path not in paths] for name, some in files.items()}


def _find_unlisted(
    store: TimelineStore,
    timeline: Timeline,
    instant: str,
    bases: list[BaseFile],
    load_archived: Callable[[], ArchivedTimeline],
) -> Iterator[str]:
    commit = _commit(store, timeline, instant, load_archived)
    named = {stat.path for stat in commit.write_stats} if commit else set()
    slots = {_slot(base) for base in bases if base.path in named}
    for base in bases:
        if base.name.instant == instant and _slot(base) in slots and base.path not in named:
            yield base.path


def _commit(
    store: TimelineStore,
    timeline: Timeline,
    instant: str,
    load_archived: Callable[[], ArchivedTimeline],
) -> CommitMetadata | None:
    """Return the metadata of a completed commit; None if the archive lacks it or is damaged."""
    active = timeline.find(instant)
    if active is not None:
        return store.read_commit(active)
    try:
        archived = load_archived()
        found = archived.find(instant)
        return archived.read_commit(found) if found else None
    except CorruptData as error:
        _log.warning("it is unknown which attempt to execute %s completed: %s", instant, error)
        return None


def _slot(base: BaseFile) -> _Slot:
    return base.partition_path, base.name.file_id, base.name.instant
