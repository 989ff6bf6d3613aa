"""Waiting for events in other threads or processes, which may be late on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable

#: The pause between two looks: short at first, for what happens at once.
_FIRST_S, _LONGEST_S = 0.002, 0.05


def until(
    is_so: Callable[[], bool], what: str = "what should happen by itself", within_s: float = 120.0
) -> None:
    """Return as soon as the condition is true.

    Raises:
        TimeoutError: the condition does not become true in time.
    """
    pause_s, deadline = _FIRST_S, time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            message = f"waited {within_s:.0f} s for {what}"
            raise TimeoutError(message)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_S)
