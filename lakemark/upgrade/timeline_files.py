"""Converts the files of a timeline to the layout of another version.

- The content of a commit is converted between JSON and Avro. All other files, such as plans, keep
  their content.
- In layout 2, the name of a completed instant contains its completion time; in layout 1 it does
  not.
- A pending ``clustering`` is a ``replacecommit`` in layout 1.

In layout 1, the completion time of an instant is the modification time of its file, which is too
late if the table was copied. With such a completion time, a log would be assigned to a slice that
began after the log's commit. So the completion time of a commit is limited to the time before the
request of the next compaction. This limit is correct, because in version 6 a compaction is
requested only after earlier commits have completed. Source: ``SevenToEightUpgradeHandler``,
``EightToSevenDowngradeHandler`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from lakemark.model.action import COMMITS, Action, State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.storage.storage import Storage
from lakemark.timeline.clock import add_to_instant
from lakemark.timeline.content import decode_commit, encode_commit
from lakemark.timeline.layout import TimelineLayout
from lakemark.timeline.timeline_store import TimelineStore


@dataclass(frozen=True, slots=True)
class Move:
    """A file of the timeline in the old and in the new layout.

    Attributes:
        instant: the instant in the old layout.
        source: path of the file in the old layout.
        moved: the instant in the new layout.
        target: path of the file in the new layout.
    """

    instant: Instant
    source: str
    moved: Instant
    target: str


def moves(
    storage: Storage, store: TimelineStore, old: TimelineLayout, new: TimelineLayout
) -> list[Move]:
    """Return the moves of all files of the active timeline, oldest instant first.

    Args:
        storage: storage of the table.
        store: the table's timeline, in the old layout.
        old: the old layout.
        new: the new layout.
    """
    _, objects = storage.list_folder(old.folder)
    found = ((info, store.instant_of(info)) for info in objects)
    seen = sorted(((i, info.path) for info, i in found if i), key=lambda pair: pair[0].requested_at)
    compactions = sorted(i.requested_at for i, _ in seen if i.action is Action.COMPACTION)
    clusterings = {i.requested_at for i, _ in seen if _is_clustering(i, store)}
    done = []
    for instant, path in seen:
        moved = _moved(instant, new, clusterings, compactions)
        done.append(Move(instant, path, moved, f"{new.folder}/{new.name_of(moved)}"))
    return done


def content_of(storage: Storage, move: Move, version: FormatVersion) -> bytes:
    """Return the content that a file must have in a table of this version."""
    data, instant = storage.read(move.source), move.instant
    if not data or instant.action not in COMMITS or instant.state is State.REQUESTED:
        return data
    return encode_commit(instant.action, decode_commit(data, move.source), version)


def _moved(
    instant: Instant, new: TimelineLayout, clusterings: set[str], compactions: Sequence[str]
) -> Instant:
    if instant.is_completed:
        if not new.names_completion:
            return replace(instant, is_legacy=True)
        at = _completed_at(instant, compactions) if instant.is_legacy else instant.completed_at
        return replace(instant, completed_at=at, is_legacy=False)
    if new.names_completion and instant.requested_at in clusterings:
        return replace(instant, action=Action.CLUSTERING)
    if not new.names_completion and instant.action is Action.CLUSTERING:
        return replace(instant, action=Action.REPLACE_COMMIT)
    return instant


def _completed_at(instant: Instant, compactions: Sequence[str]) -> str:
    completed_at = instant.completed_at or instant.requested_at
    at = bisect_right(compactions, instant.requested_at)
    if instant.action in COMMITS and at < len(compactions):
        limit = add_to_instant(compactions[at], -timedelta(milliseconds=1))
        completed_at = min(completed_at, limit)
    return max(completed_at, instant.requested_at)


def _is_clustering(instant: Instant, store: TimelineStore) -> bool:
    is_requested = instant.state is State.REQUESTED and instant.action is Action.REPLACE_COMMIT
    return is_requested and store.read_clustering_plan(instant) is not None
