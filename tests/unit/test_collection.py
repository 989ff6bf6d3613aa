"""Which tests a run leaves out below depth 1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from tests import collection, depth
from tests.collection import LONG_TEST_OF_EACH_FILE, MANY, unsampled

FILES = [f"tests/stream/test_{name}.py" for name in "abcdefgh"]


class Case(pytest.Item):
    """A test that is only selected."""

    def runtest(self) -> None:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def small_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "DEPTH", 0.1)
    monkeypatch.setattr(depth, "EVERYTHING", False)


def cases(session: pytest.Session, names: Iterable[str], *marks: str) -> list[pytest.Item]:
    made: list[pytest.Item] = []
    for name in names:
        one = Case.from_parent(session, name=name, nodeid=name)
        for mark in marks:
            one.add_marker(mark)
        made.append(one)
    return made


def kept(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    left_out = unsampled(items)
    return [item for item in items if item not in left_out]


@pytest.mark.parametrize(
    ("test", "count", "expected"),
    [
        ("tests/unit/codec/test_any.py::test_a", 40, 4),
        ("tests/unit/codec/test_any.py::test_a", MANY - 1, MANY - 1),
        ("tests/docs/test_any.py::test_a", 40, 40),
        ("tests/recovery/test_any.py::test_a", 5, 1),
    ],
)
def test_cases_of_a_matrix_are_sampled(
    test: str, count: int, expected: int, request: pytest.FixtureRequest
) -> None:
    items = cases(request.session, [f"{test}[{number}]" for number in range(count)])
    assert len(kept(items)) == expected


@pytest.mark.parametrize("is_spark_35", [True, False])
def test_tests_that_repeat_those_on_spark_40_are_sampled(
    is_spark_35: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "IS_SPARK_35", is_spark_35)
    names = [f"{file}::test_{number}" for file in FILES for number in range(10)]
    on_spark = cases(request.session, names, "spark")
    others = cases(request.session, [f"{name}_without" for name in names])
    found = kept([*on_spark, *others])
    assert [item for item in found if item in others] == others
    files = [item.nodeid.partition("::")[0] for item in found if item in on_spark]
    assert files == FILES if is_spark_35 else len(files) == len(names)


@pytest.mark.parametrize(("share", "of_a_file"), [(0.25, 4), (0.1, 2)])
def test_at_a_small_depth_one_of_two_tests_of_a_file_asks_apache_hudi(
    share: float,
    of_a_file: int,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(depth, "DEPTH", share)
    files = [f"tests/interop/test_{name}.py" for name in "abc"]
    names = [
        f"{file}::test_{number}[{case}]" for file in files for number in range(4) for case in "xy"
    ]
    found = [item.nodeid for item in kept(cases(request.session, names, "oracle"))]
    assert [name.partition("::")[0] for name in found] == [
        one for one in files for _ in range(of_a_file)
    ]
    assert len({name.partition("[")[0] for name in found}) == len(found)
    others = cases(request.session, [f"{file}::test_{n}" for file in files for n in range(4)])
    assert kept(others) == others


def test_a_long_test_of_each_file_runs_or_at_a_smaller_depth_of_some_files(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{file}::test_{number}" for file in FILES for number in range(3)]
    long = cases(request.session, names, "slow")
    assert len(kept(long)) == len(FILES)
    monkeypatch.setattr(depth, "DEPTH", LONG_TEST_OF_EACH_FILE / 4)
    assert len(kept(long)) == len(FILES) / 4


def test_seeds_draw_every_long_test_sooner_or_later(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{file}::test_{number}" for file in FILES for number in range(3)]
    long = cases(request.session, names, "slow")
    monkeypatch.setattr(depth, "DEPTH", LONG_TEST_OF_EACH_FILE / 4)
    seen = set[pytest.Item]()
    for seed in range(300):
        monkeypatch.setattr(depth, "SEED", seed)
        seen |= {*kept(long)}
    assert seen == {*long}
