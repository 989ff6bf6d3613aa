"""The model of random histories knows which rows a time travel query finds."""

from __future__ import annotations

from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline
from tests.interop.random_history.model import Model


def _commit(requested_at: str, completed_at: str) -> Instant:
    return Instant(requested_at, Action.DELTA_COMMIT, State.COMPLETED, completed_at)


def test_archival_does_not_hide_that_instants_overlapped() -> None:
    long, short, last = _commit("01", "05"), _commit("02", "03"), _commit("06", "07")
    model = Model()
    for number, completed in enumerate([[short], [long, short], [long, short, last]]):
        model.rows = {"a": (number, number)}
        model.record(Timeline.of(completed))
    model.record(Timeline.of([short, last]))
    assert model.past == [(short, None), (last, {"a": (2, 2)})]
