"""Which instants of a metadata table are valid, and which of them created its partitions."""

from __future__ import annotations

from lakemark.metadata.valid_instants import draw_first_number, first_initial, initial
from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline


def created(number: int, completed_at: str) -> Instant:
    return Instant(initial(number), Action.DELTA_COMMIT, State.COMPLETED, completed_at)


def test_first_instant_is_the_one_that_completed_first() -> None:
    """The first instant is found by its completion time, because its number may be the higher one.

    Apache Hudi gives the instant of a partition that it adds later the lowest unused number.
    """
    ours, apaches = created(417, "20260101000000000"), created(0, "20260102000000000")
    commit = Instant("20260101120000000", Action.DELTA_COMMIT, State.COMPLETED, "20260101120001000")
    assert first_initial(Timeline.of([apaches, ours, commit])) == ours
    assert first_initial(Timeline.of([commit])) is None


def test_numbers_leave_room_for_all_instants_in_three_digits() -> None:
    drawn = {draw_first_number(3) for _ in range(5_000)}
    assert min(drawn) >= 10
    assert max(drawn) + 2 <= 999
    assert len(drawn) > 900
