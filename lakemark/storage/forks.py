"""Refuses object stores in a forked process, because obstore's client does not support forks.

A forked process has none of the client's threads, but shares the client's sockets with its parent.
If the forked process used the client, both processes would hang. Importing the client or opening a
store is harmless. So workers may be forked from a process that has sent no request (as PySpark
does).
"""

from __future__ import annotations

import os

from lakemark.errors import Unsupported

_first_user: int | None = None


def refuse_after_fork() -> None:
    """Check that this process may use the client; called before every request of the client.

    Raises:
        Unsupported: this process was forked from a process that had already sent requests.
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
