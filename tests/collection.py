"""Which files of tests a run has to import: those in which a mark that ``-m`` asks for is named.

Importing all tests takes each worker seconds, and the runs of the tests with Spark, with Apache
Hudi and of the long ones need a few files of some three hundred.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, combinations
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

#: The marks by which the Makefile chooses tests. A file names those that its tests have.
CHOOSING = ("spark", "kafka", "oracle", "slow")

_NAME = re.compile(r"\w+")
_OPERATORS = {"and", "or", "not"}


def may_hold_wanted(file: Path, expression: str) -> bool:
    """Whether a test of this file can have marks of which ``-m`` is true."""
    return not expression or _can_be_true(expression, _named(file.read_text("utf-8")))


def check_marks_are_named(items: Iterable[pytest.Item]) -> None:
    """Refuse a mark that comes from elsewhere: its tests would be left out unnoticed.

    Raises:
        UsageError: there is one.
    """
    named = {file: _named(file.read_text("utf-8")) for file in {item.path for item in items}}
    for item in items:
        for mark in CHOOSING:
            if mark not in named[item.path] and item.get_closest_marker(mark) is not None:
                message = f"{item.nodeid} is marked {mark}: its file must say pytest.mark.{mark}"
                raise pytest.UsageError(message)


def _named(text: str) -> frozenset[str]:
    return frozenset(mark for mark in CHOOSING if f"pytest.mark.{mark}" in text)


@cache
def _can_be_true(expression: str, named: frozenset[str]) -> bool:
    """Whether the expression is true of a test with some of these marks, and any of other names."""
    compiled = Expression.compile(expression)
    open_names = sorted({*_NAME.findall(expression)} - ({*CHOOSING} - named) - _OPERATORS)
    return any(_is_true(compiled, chosen) for chosen in _subsets(open_names))


def _is_true(compiled: Expression, marks: tuple[str, ...]) -> bool:
    def is_chosen(name: str, /, **_: str | int | bool | None) -> bool:
        return name in marks

    return compiled.evaluate(is_chosen)


def _subsets(names: list[str]) -> Iterator[tuple[str, ...]]:
    return chain.from_iterable(combinations(names, size) for size in range(len(names) + 1))
