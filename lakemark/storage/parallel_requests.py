"""Makes several requests to a store at the same time, if it is remote.

On a local disk, requests are made one after the other, because threads would only cost time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from lakemark.storage.storage import Storage

Item = TypeVar("Item")
Answer = TypeVar("Answer")

#: Requests at the same time. More of them would hardly shorten the waiting time.
_AT_ONCE = 16


def request_all(
    storage: Storage, request: Callable[[Item], Answer], items: Sequence[Item]
) -> list[Answer]:
    """Make a request for each item, and return the answers in order.

    If requests fail, the error of the first of them is raised, after all requests have ended. If a
    signal interrupts the call, requests that have not begun are not made.

    Args:
        storage: the store of the requests.
        request: makes a request; on a remote store it is called in several threads.
        items: what to request.
    """
    if len(items) <= 1 or not storage.is_remote:
        return [request(item) for item in items]
    threads = ThreadPoolExecutor(min(len(items), _AT_ONCE))
    try:
        futures = [threads.submit(request, item) for item in items]
        wait(futures)
    finally:  # a signal may interrupt the wait; the process would make all requests before it ends
        threads.shutdown(cancel_futures=True)
    return [future.result() for future in futures]
