"""Names of the timeline's files, layout 2 (table versions 8 and 9).

requested   20260101000000000.deltacommit.requested
inflight    20260101000000000.deltacommit.inflight      (of a commit: 20260101000000000.inflight)
completed   20260101000000000_20260101000003120.deltacommit

A pending ``compaction`` completes as ``commit``. Source: ``InstantFileNameGeneratorV2``.
"""

from __future__ import annotations

import re
from typing import Protocol

from table.model.action import Action, State
from table.model.instant import Instant

_PENDING = re.compile(r"^(\d{14,17})(?:\.([a-z]+))?\.(requested|inflight)$")
_COMPLETED = re.compile(r"^(\d{14,17})_(\d{14,17})\.([a-z]+)$")
_WORDS = {str(action): action for action in Action}


class TimelineLayout(Protocol):
    """How a table version names and places its instants; chosen once, when the table opens."""

    @property
    def folder(self) -> str:
        """Folder of the active timeline, from the table's root."""
        ...

    def name_of(self, instant: Instant) -> str:
        """File name of an instant in its state."""
        ...

    def parse(self, name: str) -> Instant | None:
        """The instant that a file names, or None when it names none."""
        ...


class LayoutV2:
    """Layout of table versions 8 and 9."""

    folder = ".hoodie/timeline"

    def name_of(self, instant: Instant) -> str:
        """File name of an instant in its state."""
        if instant.completed_at is not None:
            return f"{instant.requested_at}_{instant.completed_at}.{instant.action}"
        if instant.action is Action.COMMIT and instant.state is State.INFLIGHT:
            return f"{instant.requested_at}.inflight"
        return f"{instant.requested_at}.{instant.action}.{instant.state}"

    def parse(self, name: str) -> Instant | None:
        """The instant that a file names; None for history, checksums and unknown actions."""
        if match := _COMPLETED.match(name):
            requested_at, completed_at, word = match.groups()
            return _instant(requested_at, word, State.COMPLETED, completed_at)
        if match := _PENDING.match(name):
            requested_at, word, state = match.groups()
            return _instant(requested_at, word or Action.COMMIT, State(state), None)
        return None


def _instant(
    requested_at: str, word: str, state: State, completed_at: str | None
) -> Instant | None:
    action = _WORDS.get(word)
    return None if action is None else Instant(requested_at, action, state, completed_at)
