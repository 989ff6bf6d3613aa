"""Refuses object stores after a fork, which obstore's client does not support.

A forked process has none of the client's threads and shares its sockets. If it used the client, it
would hang, and so would its parent. Importing the client or opening a store is harmless, so workers
may be forked from a process that has done only that (as PySpark does).
"""

from __future__ import annotations

import os

from lakemark.errors import Unsupported

_first_user: int | None = None


def refuse_after_fork() -> None:
    """Check the process; called before every request of the client.

    Raises:
        Unsupported: this process was forked from one that had sent requests.
    """
    global _first_user
    process = os.getpid()
    if _first_user is None:
        _first_user = process
    if _first_user != process:
        message = (
            f"process {process} was forked from {_first_user}, which had used an object store; "
            'start a new process, as multiprocessing.get_context("spawn") does'
        )
        raise Unsupported(message)
