"""Ctrl-C and SIGTERM: end after the batch in progress; asked again, at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stops_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """While inside, the first signal calls ``stop``, the next raises ``KeyboardInterrupt``."""
    asked = False

    def on_signal(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        stop()

    before = {one: signal.signal(one, on_signal) for one in _SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def end_at_once() -> NoReturn:
    """End the process as a success, whatever its threads do: Python would wait for them."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
