"""The files of a timeline, and what they are in the layout of another version.

Commits change between JSON and Avro; a completed instant gains or loses the completion time in its
name; a pending ``clustering`` is a ``replacecommit`` in layout 1. Plans and all else keep their
bytes. In layout 1 an instant completed when its file was last written. A copy may say later than
that, and then a log would belong to a slice that was begun after it: so no commit completes after
the request of the next compaction, before which, in version 6, it must have completed. Source:
``SevenToEightUpgradeHandler``, ``EightToSevenDowngradeHandler`` of Apache Hudi 1.2.0.
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
    """One file of the timeline.

    Attributes:
        instant: as the old layout reads it.
        source: its path.
        moved: as it is to be written.
        target: its path then.
    """

    instant: Instant
    source: str
    moved: Instant
    target: str


def moves(
    storage: Storage, store: TimelineStore, old: TimelineLayout, new: TimelineLayout
) -> list[Move]:
    """Return every file of the active timeline, oldest first.

    Args:
        storage: of the table.
        store: its timeline, in the old layout.
        old: where the files lie.
        new: where they are to lie.
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
    """Return what a file holds in a table of that version."""
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
