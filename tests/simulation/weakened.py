"""The protocol without one of its rules, to see that the simulation misses each.

``python -m tests.simulation --without conflicts`` runs new seeds until a history fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from table.model.action import Action
from table.timeline.timeline import Timeline
from table.transaction.access import TableAccess
from table.transaction.transaction import Transaction


def _nothing(*_: object, **__: object) -> None:
    pass


def _begin_over_old_timeline(
    access: TableAccess, action: Action, decide: Callable[[Timeline], Any]
) -> tuple[Transaction, Any]:
    timeline = access.timeline.load()
    decided = decide(timeline)
    with access.lock.hold(90.0):
        begun = Transaction._requested(access, action, timeline)
    return begun, decided


#: What takes the place of which part of the code, for each rule.
RULES: Mapping[str, tuple[str, Any]] = {
    "withdrawal": ("table.timeline.lock._withdraw_prepared", _nothing),
    "conflicts": ("table.transaction.transaction.check_conflicts", _nothing),
    "base": (
        "table.transaction.transaction.Transaction.begin",
        staticmethod(_begin_over_old_timeline),
    ),
    "lease": ("table.timeline.lock.Lease.check", _nothing),
    "heartbeats": ("table.transaction.sharing.beating", lambda *_: frozenset[str]()),
    "standing": ("table.transaction.transaction.Transaction._check_standing", _nothing),
}


@contextmanager
def without(rule: str | None) -> Iterator[None]:
    """A block in which one rule is not kept."""
    with pytest.MonkeyPatch.context() as patch:
        if rule is not None:
            patch.setattr(*RULES[rule])
        yield
