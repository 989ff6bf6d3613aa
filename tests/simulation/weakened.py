"""The protocol without one of its rules, to show that the simulation detects the lack of each.

``python -m tests.simulation --without conflicts`` runs new seeds until a history fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from lakemark.model.action import Action
from lakemark.model.commit_metadata import Operation
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.table_context import TableContext
from lakemark.transaction.transaction import Transaction


def _nothing(*_: object, **__: object) -> None:
    pass


def _begin_over_old_timeline(
    context: TableContext,
    action: Action,
    decide: Callable[[Timeline], Any],
    operation: Operation,
) -> tuple[Transaction, Any]:
    timeline = context.timeline.load()
    decided = decide(timeline)
    with context.lock.hold(90.0):
        begun = Transaction._requested(context, action, timeline, operation)
    return begun, decided


#: The function of the code that implements each rule, and its replacement.
RULES: Mapping[str, tuple[str, Any]] = {
    "withdrawal": ("lakemark.timeline.locks.open_lock._withdraw_prepared", _nothing),
    "conflicts": ("lakemark.transaction.transaction.check_conflicts", _nothing),
    "base": (
        "lakemark.transaction.transaction.Transaction.begin",
        staticmethod(_begin_over_old_timeline),
    ),
    "lease": ("lakemark.timeline.locks.table_lock.Lease.check", _nothing),
    "heartbeats": ("lakemark.transaction.multi_writer.find_alive", lambda *_: frozenset[str]()),
    "validity": ("lakemark.transaction.transaction.Transaction._check_inflight", _nothing),
}


@contextmanager
def without(rule: str | None) -> Iterator[None]:
    """Run a block in which one rule does not apply."""
    with pytest.MonkeyPatch.context() as patch:
        if rule is not None:
            patch.setattr(*RULES[rule])
        yield
