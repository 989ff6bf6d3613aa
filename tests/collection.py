"""Decides which test files a run imports, and which cases of a large matrix it runs.

It imports the files that name a mark for which ``-m`` asks. Each worker needs seconds to import all
of some three hundred files. A run of only the tests with Spark, with Apache Hudi, or of the long
tests needs a few of them.

At a depth below 1 (``tests.depth``), the seed selects the cases of each matrix in ``MATRICES``, and
long tests of each file, which together take most of the time. Everything else runs whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, combinations
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.depth import sample

#: The marks by which the Makefile chooses tests. A file names those that its tests have.
CHOOSING = ("spark", "kafka", "oracle", "slow")

#: Folders whose tests are matrices: tables, scenarios, or settings, with seconds for each case.
MATRICES = (
    "tests/golden",
    "tests/interop",
    "tests/recovery",
    "tests/spark",
    "tests/stream",
    "tests/unit/metadata",
    "tests/unit/operations",
    "tests/unit/sinks",
    "tests/unit/streamer/test_commands_on_any_table.py",
)

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
    """Return the cases of matrices that the seed does not select; none from depth 1 on.

    The cases of one test function are a matrix. All long tests of one file are a matrix, too.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow") is not None:
            cases.setdefault(item.nodeid.partition("::")[0], []).append(item)
        elif item.nodeid.startswith(MATRICES):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen = {item for name, matrix in cases.items() for item in sample(matrix, name=name)}
    return {item for matrix in cases.values() for item in matrix} - chosen


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
