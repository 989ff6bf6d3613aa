"""Folders and names of the timeline's files.

Layout 2 (table versions 8 and 9), in ``.hoodie/timeline``::

    requested   20260101000000000.deltacommit.requested
    inflight    20260101000000000.deltacommit.inflight    (of a commit: 20260101000000000.inflight)
    completed   20260101000000000_20260101000003120.deltacommit

Layout 1 (version 6), in ``.hoodie`` itself: as above, but completed files are named
``20260101000000000.deltacommit``, and their modification time is the completion time. In tables of
old writers, times have 14 digits. A completed file of layout 1 in a folder of layout 2 comes from
an upgrade, and is read the same way.

A pending ``compaction`` completes as ``commit``, a ``logcompaction`` as ``deltacommit``, a
``clustering`` as ``replacecommit``. Layout 1 has no ``clustering``; it is a ``replacecommit`` in
all states. Source: ``InstantFileNameGeneratorV1``, ``…V2``, ``InstantGeneratorV1``, ``…V2``,
``TimelinePathProviderV1``, ``…V2``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from lakemark.config.table_properties import TableProperties
from lakemark.model.action import Action, State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant

_OWN_FOLDER = ".hoodie"

_PENDING = re.compile(r"([0-9]+)(?:\.([a-z]+))?\.(requested|inflight)")
_COMPLETED = re.compile(r"([0-9]+)_([0-9]+)\.([a-z]+)")
_LEGACY = re.compile(r"([0-9]+)\.([a-z]+)")
_WORDS = {str(action): action for action in Action}
_FINAL_WORDS = {word: action for word, action in _WORDS.items() if action.completes_as is action}


class TimelineLayout(Protocol):
    """Folders and file names of a table version's instants; chosen once, when the table opens."""

    @property
    def folder(self) -> str:
        """Folder of the active timeline, from the table's root."""
        ...

    @property
    def archive_folder(self) -> str:
        """Folder of the archived instants, from the table's root."""
        ...

    @property
    def names_completion(self) -> bool:
        """Whether the name of a completed instant contains its completion time."""
        ...

    def name_of(self, instant: Instant) -> str:
        """Return the file name of an instant in its state."""
        ...

    def parse(self, name: str) -> Instant | None:
        """Parse the instant in the name of a file; None if the name is not that of an instant.

        If the name of a completed file has no completion time, the requested time is used;
        ``TimelineReader`` replaces it by the file's modification time.

        Args:
            name: the file's name, without its folder.
        """
        ...


@dataclass(frozen=True, slots=True)
class LayoutV2:
    """Layout of table versions 8 and 9."""

    folder: str = f"{_OWN_FOLDER}/timeline"
    archive_folder: str = f"{_OWN_FOLDER}/timeline/history"
    names_completion: bool = True

    def name_of(self, instant: Instant) -> str:
        """Return the file name of an instant in its state."""
        if instant.completed_at is not None and not instant.is_legacy:
            return f"{instant.requested_at}_{instant.completed_at}.{instant.action}"
        return _plain_name(instant)

    def parse(self, name: str) -> Instant | None:
        """Parse a file name; None for the history, checksums and unknown actions."""
        if match := _COMPLETED.fullmatch(name):
            requested_at, completed_at, word = match.groups()
            action = _FINAL_WORDS.get(word)
            if action is not None:
                return Instant(requested_at, action, State.COMPLETED, completed_at)
            return None
        return _parse_plain(name)


@dataclass(frozen=True, slots=True)
class LayoutV1:
    """Layout of table version 6."""

    folder: str = _OWN_FOLDER
    archive_folder: str = f"{_OWN_FOLDER}/archived"
    names_completion: bool = False

    def name_of(self, instant: Instant) -> str:
        """Return the file name of an instant in its state."""
        return _plain_name(instant)

    def parse(self, name: str) -> Instant | None:
        """Parse a file name; None for properties, checksums and unknown actions."""
        return _parse_plain(name)


def layout_of(properties: TableProperties, version: FormatVersion) -> TimelineLayout:
    """Return the layout of a table, with the folders that its properties name."""
    if version.timeline_layout == 1:
        return LayoutV1(archive_folder=_below(_OWN_FOLDER, properties.archive_folder))
    folder = _below(_OWN_FOLDER, properties.timeline_folder)
    return LayoutV2(folder, _below(folder, properties.history_folder))


def _below(parent: str, folder: str) -> str:
    return f"{parent}/{folder}" if folder else parent


def _plain_name(instant: Instant) -> str:
    """Return the file name of an instant, without a completion time."""
    if instant.is_completed:
        return f"{instant.requested_at}.{instant.action}"
    if instant.action is Action.COMMIT and instant.state is State.INFLIGHT:
        return f"{instant.requested_at}.inflight"
    return f"{instant.requested_at}.{instant.action}.{instant.state}"


def _parse_plain(name: str) -> Instant | None:
    if match := _PENDING.fullmatch(name):
        requested_at, word, state = match.groups()
        action = _WORDS.get(word or Action.COMMIT)
        return None if action is None else Instant(requested_at, action, State(state))
    match = _LEGACY.fullmatch(name)
    action = _FINAL_WORDS.get(match.group(2)) if match else None
    if match is None or action is None:
        return None
    requested_at = match.group(1)
    return Instant(requested_at, action, State.COMPLETED, requested_at, is_legacy=True)
