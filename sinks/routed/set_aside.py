"""Sets tables of a routed pipeline aside after a failure, until they are tried again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lakemark.execution.runner import LocalRunner
from sinks.routed.tables import JudgeFailure, RoutedTables


@dataclass(frozen=True, slots=True)
class _Aside:
    """A table that is set aside.

    Attributes:
        error: why.
        due_at: when it is tried again, in seconds of ``time.monotonic``; None if it is not.
    """

    error: Exception
    due_at: float | None


class SetAside:
    """Sets tables aside that fail, so that the other tables go on. Not thread-safe.

    ``name in set_aside`` tells whether a table is set aside now.

    Args:
        tables: what reports the failures.
        judge: decides when a failed table is tried again.
    """

    def __init__(self, tables: RoutedTables, judge: JudgeFailure) -> None:
        self._tables, self._judge = tables, judge
        self._aside = dict[str, _Aside]()
        #: The number of consecutive failures of each table.
        self._failures = dict[str, int]()

    def __contains__(self, name: object) -> bool:
        return name in self._aside

    @property
    def errors(self) -> Mapping[str, Exception]:
        """The tables that are set aside now, and why."""
        return {name: one.error for name, one in sorted(self._aside.items())}

    @property
    def due_in_s(self) -> float | None:
        """The seconds until a table is tried again; None if none will be. Any thread may ask."""
        due = [one.due_at for one in tuple(self._aside.values()) if one.due_at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def take_back_due(self) -> None:
        """Take back the tables whose pause is over."""
        now = time.monotonic()
        for name, one in tuple(self._aside.items()):
            if one.due_at is not None and one.due_at <= now:
                del self._aside[name]

    def add_failure(self, name: str, error: Exception) -> None:
        """Set a table aside that has failed."""
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        self.add(name, error, self._judge(error, failures))

    def add(self, name: str, error: Exception, pause_s: float | None) -> None:
        """Set a table aside for some seconds, or for the rest of the run."""
        due_at = None if pause_s is None else time.monotonic() + pause_s
        self._aside[name] = _Aside(error, due_at)
        self._tables.set_aside(name, error, self._failures.get(name, 0), pause_s)

    def note_success(self, name: str) -> None:
        """Note that a table was written, so that its next failure is the first one."""
        self._failures.pop(name, None)

    def call_for_each(
        self, function: Callable[[str], None], names: Sequence[str], runner: LocalRunner
    ) -> None:
        """Call a function for each table, several at once; set tables aside for which it fails."""

        def call(name: str) -> Exception | None:
            try:
                function(name)
            except Exception as error:
                return error
            return None

        for name, error in zip(names, runner.map(call, names), strict=True):
            if error is not None:
                self.add_failure(name, error)
