"""Detects files of compaction attempts that did not complete.

A paused executor may write a file after another attempt to execute the same compaction, or log
compaction, has completed. Both files have the same instant and file id, so both count as committed.
The metadata of the completed commit names the valid file. This metadata is read only if there are
several such files. Apache Hudi instead reads the base file that it lists last, and both logs. Both
files contain the same rows, because the plan determines which rows are merged. So this changes
nothing if the same change may be merged twice, as in all merge modes but ``CUSTOM``. Logs of table
version 6 are not checked, because their names do not contain the instant. Therefore, and because
deletes lose their columns, lakemark compacts no logs of tables with custom mergers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import TypeAlias

from lakemark.errors import CorruptData
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_names import BaseFileName
from lakemark.model.file_slice import BaseFile
from lakemark.model.format_version import FormatVersion
from lakemark.timeline.archived_timeline import ArchivedTimeline
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile

#: Partition path, file id, instant and kind of a file; for a log, the kind contains its version.
Slot: TypeAlias = tuple[str, str, str, str]

_log = logging.getLogger(__name__)


def find_lost_attempts(
    store: TimelineStore, timeline: Timeline, files: Mapping[str, Collection[DataFile]]
) -> set[str]:
    """Return the paths of files that were written by attempts that did not complete.

    Args:
        store: reads the timeline's instants.
        timeline: the active timeline.
        files: data files by partition path, as storage lists them.

    Raises:
        SnapshotChanged: the archive was rewritten meanwhile; load the timeline again.
    """
    listed = (file for some in files.values() for file in some)
    found = [file for file in listed if names_instant(file, store.version)]
    counts = Counter(map(slot_of, found))
    doubtful = [file for file in found if counts[slot_of(file)] > 1]
    lost: set[str] = set()
    load_archived = cache(store.load_archived)
    for instant in sorted({file.name.instant for file in doubtful}):
        if timeline.is_committed(instant):
            lost |= set(_find_unlisted(store, timeline, instant, doubtful, load_archived))
    if lost:
        _log.warning("%s are skipped: another attempt to compact completed", sorted(lost))
    return lost


def names_instant(file: DataFile, version: FormatVersion) -> bool:
    """Return whether the name of a file contains the instant that wrote the file."""
    return isinstance(file, BaseFile) or not version.logs_name_their_slice


def slot_of(file: DataFile) -> Slot:
    """Return what only one file of a completed commit has; see ``Slot``.

    Args:
        file: a file whose name contains the instant that wrote it.
    """
    name = file.name
    kind = "" if isinstance(name, BaseFileName) else f"log {name.version} {name.is_cdc}"
    return file.partition_path, name.file_id, name.instant, kind


def without_paths(
    files: Mapping[str, list[DataFile]], paths: Collection[str]
) -> dict[str, list[DataFile]]:
    """Return the files by partition path, without the files at ``paths``."""
    return {name: [file for file in some if file.path not in paths] for name, some in files.items()}


def _find_unlisted(
    store: TimelineStore,
    timeline: Timeline,
    instant: str,
    files: list[DataFile],
    load_archived: Callable[[], ArchivedTimeline],
) -> Iterator[str]:
    commit = _commit(store, timeline, instant, load_archived)
    named = {path for stat in commit.write_stats for path in stat.sizes_bytes} if commit else set()
    slots = {slot_of(file) for file in files if file.path in named}
    for file in files:
        if file.name.instant == instant and slot_of(file) in slots and file.path not in named:
            yield file.path


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
