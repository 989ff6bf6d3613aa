"""A thread that accompanies a block, and that nothing waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: What takes longer than this is left to itself when the block ends.
_END_WITHIN_S = 1.0


@contextmanager
def background_thread(name: str, run: Callable[[threading.Event], object]) -> Iterator[None]:
    """A block during which a thread runs.

    Args:
        name: of the thread.
        run: is to end soon after its event was set.
    """
    ending = threading.Event()
    thread = threading.Thread(target=run, args=(ending,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(_END_WITHIN_S)
