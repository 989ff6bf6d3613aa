from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.execution.interleave import interleaved, read_ahead
from tests.depth import examples


def source(name: int, count: int) -> Callable[[], Iterator[tuple[int, int]]]:
    return lambda: ((name, number) for number in range(count))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 9), max_size=6), st.integers(1, 4), st.integers(1, 3))
def test_every_item_comes_once_and_a_sources_items_in_order(
    counts: list[int], threads: int, ahead: int
) -> None:
    came = list(interleaved([source(n, c) for n, c in enumerate(counts)], threads, ahead))
    expected = [[(n, number) for number in range(c)] for n, c in enumerate(counts)]
    assert [[item for item in came if item[0] == n] for n in range(len(counts))] == expected


@pytest.mark.parametrize("threads", [1, 3])
def test_a_source_that_fails_is_told_and_ends_the_others(threads: int) -> None:
    def fails() -> Iterator[tuple[int, int]]:
        yield 0, 0
        message = "gone"
        raise OSError(message)

    before = set(threading.enumerate())
    with pytest.raises(OSError, match="gone"):
        list(interleaved([fails, source(1, 10**9)], threads))
    assert set(threading.enumerate()) <= before


def test_whoever_stops_reading_ends_the_threads() -> None:
    before = set(threading.enumerate())
    with closing(interleaved([source(n, 10**9) for n in range(3)], 3)) as items:
        assert next(items)[1] == 0
        assert len(set(threading.enumerate()) - before) == 3
    assert set(threading.enumerate()) <= before


@given(st.integers(0, 9), st.integers(1, 3))
def test_reading_ahead_keeps_the_order(count: int, ahead: int) -> None:
    assert list(read_ahead(source(7, count), ahead)) == [(7, number) for number in range(count)]


def test_reading_ahead_makes_the_next_item_while_one_is_in_use_and_no_more_than_asked() -> None:
    made: list[int] = []
    enough = threading.Event()

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            if len(made) == 3:
                enough.set()  # one is in use, one waits, one is in the making
            yield number

    with closing(read_ahead(items, ahead=1)) as ahead:
        assert next(ahead) == 0
        assert enough.wait(timeout=120)
        assert len(made) == 3


def test_what_fails_ahead_is_told_after_what_came_before() -> None:
    def fails() -> Iterator[int]:
        yield 1
        message = "gone"
        raise OSError(message)

    ahead = read_ahead(fails)
    assert next(ahead) == 1
    with pytest.raises(OSError, match="gone"):
        next(ahead)
