"""Decides which test files a run imports, and which cases of a large matrix it runs.

It imports the files that name a mark for which ``-m`` asks. Each worker needs seconds to import all
of some three hundred files. A run of only the tests with Spark, with Apache Hudi, or of the long
tests needs a few of them.

At a depth below 1 (``tests.depth``), the seed selects the cases of each matrix, and long tests of
each file, which together take most of the time. On Spark 3.5, it also selects tests with Spark of
each file, because the same tests run on Spark 4.0, too. Everything else runs whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from itertools import chain, combinations, filterfalse
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests import depth
from tests.depth import sample

#: The marks by which the Makefile chooses tests. A file names those that its tests have.
CHOOSING = ("spark", "kafka", "oracle", "slow")

#: Where tests are matrices: tables, scenarios, or settings, with a second or more for each case.
MATRICES = (
    "tests/contract/test_catalogs.py",
    "tests/golden",
    "tests/interop",
    "tests/property",
    "tests/recovery",
    "tests/spark",
    "tests/stream",
    "tests/unit/merge",
    "tests/unit/metadata",
    "tests/unit/operations",
    "tests/unit/services",
    "tests/unit/sinks",
    "tests/unit/streamer/checks",
    "tests/unit/streamer/test_",  # not those of its folders, such as that of the settings
)

#: Elsewhere, a test with at least so many cases is a matrix, too.
MANY = 10

#: Tests whose cases are pages, sentences, or places of the code: all of them are facts to check.
LISTS = ("tests/docs", "tests/mutants", "tests/spec")

#: Below this depth, the seed also selects the files of which a long test runs.
LONG_TEST_OF_EACH_FILE = 0.1

#: Below this depth, the seed also selects one of two tests of a file that ask Apache Hudi. Each of
#: them takes seconds, and most of them have few cases, so that fewer cases save little.
EVERY_TEST_WITH_HUDI = 0.25

#: Whether this is the second version of Spark on which the tests run.
IS_SPARK_35 = version("pyspark").startswith("3.5.")

_NAME = re.compile(r"\w+")
_OPERATORS = {"and", "or", "not"}


def may_hold_wanted(file: Path, expression: str) -> bool:
    """Whether ``-m`` may select a test of this file, judged by the marks that the file names."""
    return not expression or _can_be_true(expression, _named(file.read_text("utf-8")))


def check_marks_are_named(items: Iterable[pytest.Item]) -> None:
    """Refuse a mark that a test has but its file does not name.

    Otherwise a run with ``-m`` would silently not import the file.

    Raises:
        UsageError: a test has such a mark.
    """
    named = {file: _named(file.read_text("utf-8")) for file in {item.path for item in items}}
    for item in items:
        for mark in CHOOSING:
            if mark not in named[item.path] and item.get_closest_marker(mark) is not None:
                message = f"{item.nodeid} is marked {mark}: its file must say pytest.mark.{mark}"
                raise pytest.UsageError(message)


def unsampled(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that the seed does not select; none from depth 1 on.

    The cases of one test function are a matrix. All long tests of one file are a matrix, too, and
    so are all tests with Spark of one file on Spark 3.5.
    """
    listed = list(items)
    long = list(filter(_is_long, listed))
    others = _grouped(filterfalse(_is_long, listed), _matrix)
    matrices = {name: cases for name, cases in others.items() if _is_sampled(name, cases)}
    drawn = [*_drawn_beside_hudi(_drawn(matrices)), *_drawn_long_tests(long)]
    return {*long, *chain(*matrices.values())} - {*drawn}


def _is_long(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def _matrix(item: pytest.Item) -> str:
    """Return the name of the matrix to which a test belongs: its function, or its file."""
    is_repeated = IS_SPARK_35 and item.get_closest_marker("spark") is not None
    return _file(item) if is_repeated else item.nodeid.partition("[")[0]


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _is_sampled(name: str, cases: Sequence[pytest.Item]) -> bool:
    is_of_file = "::" not in name
    is_many = len(cases) >= MANY and not name.startswith(LISTS)
    return is_of_file or is_many or name.startswith(MATRICES)


def _grouped(
    items: Iterable[pytest.Item], name: Callable[[pytest.Item], str]
) -> dict[str, list[pytest.Item]]:
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(name(item), []).append(item)
    return groups


def _drawn(matrices: Mapping[str, Sequence[pytest.Item]], one_in: float = 1) -> list[pytest.Item]:
    return [item for name, cases in matrices.items() for item in sample(cases, one_in, name)]


def _drawn_beside_hudi(drawn: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests without one of two that ask Apache Hudi, at a small depth."""
    if depth.DEPTH >= EVERY_TEST_WITH_HUDI:
        return list(drawn)
    asking = [item for item in drawn if item.get_closest_marker("oracle") is not None]
    kept = {*_drawn(_grouped(asking, _file), one_in=2 * depth.DEPTH)}
    return [item for item in drawn if item not in asking or item in kept]


def _drawn_long_tests(long: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return long tests of each file, or, at a very small depth, of some files."""
    of_each_file = _drawn(_grouped(long, _file))
    if depth.DEPTH >= LONG_TEST_OF_EACH_FILE:
        return of_each_file
    return sample(of_each_file, one_in=LONG_TEST_OF_EACH_FILE, name="long tests")


def _named(text: str) -> frozenset[str]:
    return frozenset(mark for mark in CHOOSING if f"pytest.mark.{mark}" in text)


@cache
def _can_be_true(expression: str, named: frozenset[str]) -> bool:
    """Whether the expression can be true for a test with some of these marks.

    A name in the expression that is not a mark of ``CHOOSING`` may be true or false.
    """
    compiled = Expression.compile(expression)
    open_names = sorted({*_NAME.findall(expression)} - ({*CHOOSING} - named) - _OPERATORS)
    return any(_is_true(compiled, chosen) for chosen in _subsets(open_names))


def _is_true(compiled: Expression, marks: tuple[str, ...]) -> bool:
    def is_chosen(name: str, /, **_: str | int | bool | None) -> bool:
        return name in marks

    return compiled.evaluate(is_chosen)


def _subsets(names: list[str]) -> Iterator[tuple[str, ...]]:
    return chain.from_iterable(combinations(names, size) for size in range(len(names) + 1))
