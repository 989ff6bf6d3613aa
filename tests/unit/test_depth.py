"""Below depth 1, a part of each matrix runs; other seeds run other parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import depth, speed
from tests.collection import unsampled

CASES = [*range(100)]


@pytest.mark.parametrize(
    ("share", "one_in", "expected"),
    [(1, 1, 100), (1, 4, 25), (0.5, 1, 50), (0.3, 2, 15), (2, 4, 100)],
)
def test_depth_decides_how_many_cases_are_drawn(
    share: float, one_in: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depth, "DEPTH", share)
    monkeypatch.setattr(depth, "EVERYTHING", share > 1)
    drawn = depth.sample(CASES, one_in)
    assert len(drawn) == expected
    assert drawn == sorted({*drawn})


def test_seeds_draw_every_case_sooner_or_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "DEPTH", 0.25)
    monkeypatch.setattr(depth, "EVERYTHING", False)
    seen = set[int]()
    for seed in range(100):
        monkeypatch.setattr(depth, "SEED", seed)
        seen |= {*depth.sample(CASES)}
    assert seen == {*CASES}


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_some_case_of_a_small_matrix_is_drawn(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "DEPTH", 0.1)
    monkeypatch.setattr(depth, "EVERYTHING", False)
    assert len(depth.sample(range(count))) == 1


@given(st.integers(1, 100), st.integers(0, 300), st.integers(1, 10))
def test_any_depth_draws_its_share(percent: int, cases: int, one_in: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depth, "DEPTH", percent / 100)
        patch.setattr(depth, "EVERYTHING", False)
        drawn = depth.sample(range(cases), one_in)
    assert drawn == sorted({*drawn})
    assert abs(len(drawn) - cases * percent / 100 / one_in) <= 1


def test_only_cases_of_matrices_are_left_out(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = request.session.items
    monkeypatch.setattr(depth, "DEPTH", 1.0)
    monkeypatch.setattr(depth, "EVERYTHING", False)
    assert unsampled(items) == set()
    monkeypatch.setattr(depth, "DEPTH", 0.1)
    assert request.node not in unsampled(items)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(1.0, 1.0), (speed.USUAL_S, 1.0), (1_000.0, speed.DEPTHS[-1])]
)
def test_slower_machine_runs_a_smaller_part(seconds: float, expected: float) -> None:
    assert speed.depth(seconds) == expected
    assert speed.depth(seconds) >= speed.depth(seconds * 1.5)


def test_long_tests_are_sampled_by_the_time_that_is_left() -> None:
    whole_s = speed.LONG_TESTS_S
    assert speed.depth_of_long_tests(speed.USUAL_S, whole_s) == 1.0
    assert speed.depth_of_long_tests(speed.USUAL_S * 2, whole_s * 2) == 1.0
    assert speed.depth_of_long_tests(speed.USUAL_S, -1.0) == speed.DEPTHS_OF_LONG_TESTS[-1]


@given(st.floats(0.5, 20), st.floats(200, 3000))
def test_long_tests_are_done_in_the_time_that_is_left(seconds: float, left_s: float) -> None:
    chosen = speed.depth_of_long_tests(seconds, left_s)
    slower = seconds / speed.USUAL_S
    is_smallest = chosen == speed.DEPTHS_OF_LONG_TESTS[-1]
    assert is_smallest or speed.long_tests_s(chosen) * slower <= left_s
    larger = [depth for depth in speed.DEPTHS_OF_LONG_TESTS if depth > chosen]
    assert all(speed.long_tests_s(depth) * slower > left_s for depth in larger)
