"""Waiting for what happens by itself, however late on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Nothing that happens at all takes longer.
_LONGEST_S = 300.0


def until(is_so: Callable[[], bool], what: str = "what should happen by itself") -> None:
    """Return as soon as it is so, looked at some hundred times a second.

    Raises:
        TimeoutError: it is not so after five minutes.
    """
    deadline = time.monotonic() + _LONGEST_S
    while not is_so():
        if time.monotonic() > deadline:
            message = f"waited {_LONGEST_S:.0f} s for {what}"
            raise TimeoutError(message)
        time.sleep(0.005)
