"""Delivers changes as JSON lines to standard output, which cannot store a cursor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from streamer.subscribe.cursor import Cursor
from streamer.subscribe.target import ChangeText


class StreamTarget:
    """Writes one line for each change. The cursor is lost when the process ends.

    If a delivery fails, its lines are written again, because lines cannot be taken back.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._cursor: Cursor | None = None

    def __str__(self) -> str:
        return "standard output"

    def peek_cursor(self) -> Cursor | None:
        """Return the cursor of this process; see ``read_cursor``."""
        return self._cursor

    def take_over(self) -> None:
        """Do nothing: each process has its own standard output."""

    def read_cursor(self) -> Cursor | None:
        """Return the cursor of this process; None if nothing was delivered yet."""
        return self._cursor

    def check_continuous(self) -> None:
        """Do nothing: what was written cannot be read."""

    def deliver(self, changes: Iterable[ChangeText], cursor: Cursor) -> int:
        """Write the changes of one commit; see ``Target.deliver``."""
        count = 0
        for change in changes:
            self._out.write(change.value + "\n")
            count += 1
        self._out.flush()
        self._cursor = cursor
        return count

    def close(self) -> None:
        """Do nothing: the stream belongs to the process."""
