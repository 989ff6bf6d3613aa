from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from streamer.slots import Slots
from tests.waiting import until


def never() -> bool:
    return False


class Holder:
    """A thread that waits for a slot, and holds it until it is told to end."""

    def __init__(
        self, slots: Slots, order: list[Holder], gives_up: Callable[[], bool] = never
    ) -> None:
        self.may_end, self.had_slot = threading.Event(), False

        def run() -> None:
            with slots.hold(gives_up) as self.had_slot:
                if self.had_slot:
                    order.append(self)
                    assert self.may_end.wait(60)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def end(self) -> None:
        self.may_end.set()
        self.thread.join(60)


def test_slots_are_given_in_the_order_of_the_requests_and_never_too_many() -> None:
    slots, order = Slots(2), list[Holder]()
    holders = []
    for number in range(6):
        holders.append(Holder(slots, order))
        expected = min(number + 1, 2), max(number - 1, 0)
        until(lambda e=expected: (len(order), len(slots._waiting)) == e)  # type: ignore[misc]
    for number, holder in enumerate(holders):
        until(lambda n=number: len(order) == min(n + 2, 6))  # type: ignore[misc]
        assert slots.are_wanted is (number < 4)
        holder.end()
    assert order == holders
    assert not slots.are_wanted


def test_thread_that_gives_up_neither_gets_nor_blocks_a_slot() -> None:
    slots, order, is_stopping = Slots(1), list[Holder](), threading.Event()
    first = Holder(slots, order)
    until(lambda: order == [first])
    impatient = Holder(slots, order, is_stopping.is_set)
    until(lambda: slots.are_wanted)
    last = Holder(slots, order)
    is_stopping.set()
    impatient.thread.join(60)
    assert not impatient.had_slot
    first.end()
    until(lambda: order == [first, last])
    last.end()


def test_error_of_a_waiting_thread_leaves_the_slot_to_others() -> None:
    slots, order = Slots(1), list[Holder]()
    first = Holder(slots, order)
    until(lambda: order == [first])

    def fail() -> bool:
        raise TimeoutError

    with pytest.raises(TimeoutError), slots.hold(fail):
        pass
    first.end()
    began = time.monotonic()
    with slots.hold(never) as has_slot:
        assert has_slot
    assert time.monotonic() - began < 60
