"""A daemon thread that runs during a block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Seconds to wait for the end of the thread. After that, the thread is abandoned.
_END_WITHIN_S = 1.0


@contextmanager
def background_thread(name: str, run: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run a function in a daemon thread until the block ends.

    Args:
        name: the name of the thread.
        run: the function; it must return soon after its event is set.
    """
    ending = threading.Event()
    thread = threading.Thread(target=run, args=(ending,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(_END_WITHIN_S)
