"""Folders and names of the timeline's files.

Layout 2 (table versions 8 and 9), in ``.hoodie/timeline``::

    requested   20260101000000000.deltacommit.requested
    inflight    20260101000000000.deltacommit.inflight    (of a commit: 20260101000000000.inflight)
    completed   20260101000000000_20260101000003120.deltacommit

Layout 1 (table version 6) has its files in ``.hoodie`` itself. Pending files are named as above.
Completed files are named ``20260101000000000.deltacommit``, and their modification time is the
completion time. In tables of old writers, times have 14 digits. After an upgrade, the folder of
layout 2 may contain completed files of layout 1, which are read as in layout 1.

A pending ``compaction`` completes as ``commit``, a ``logcompaction`` as ``deltacommit``, and a
``clustering`` as ``replacecommit``. In layout 1, a clustering is called ``replacecommit`` in all
states. Source: ``InstantFileNameGeneratorV1``, ``…V2``, ``InstantGeneratorV1``, ``…V2``,
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
    """The folders and file names of a table version's instants."""

    @property
    def folder(self) -> str:
        """Folder of the active timeline, relative to the table's root."""
        ...

    @property
    def archive_folder(self) -> str:
        """Folder of the archived instants, relative to the table's root."""
        ...

    @property
    def names_completion(self) -> bool:
        """Whether the name of a completed instant contains its completion time."""
        ...

    def name_of(self, instant: Instant) -> str:
        """Return the name of the file that records an instant in its current state."""
        ...

    def parse(self, name: str) -> Instant | None:
        """Return the instant of a file name; None if the name is not that of an instant's file.

        If the name of a completed file has no completion time, the completion time is set to the
        requested time. ``TimelineReader`` later replaces this time by the file's modification time.

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
        """See ``TimelineLayout.parse``; None for the history, checksums and unknown actions."""
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
        """See ``TimelineLayout.parse``; None for properties, checksums and unknown actions."""
        return _parse_plain(name)


def layout_of(properties: TableProperties, version: FormatVersion) -> TimelineLayout:
    """Return the layout of a table, with the folders that are set in the table's properties."""
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
