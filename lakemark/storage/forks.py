"""obstore's client does not survive a fork: its threads stay behind, its sockets are shared.

A forked process that used it would hang, and so would the one it was forked from. Importing or
opening is harmless, so workers may be forked from a process that has only done that (as PySpark
does).
"""

from __future__ import annotations

import os

from lakemark.errors import Unsupported

_first_user: int | None = None


def refuse_after_fork() -> None:
    """To call before every request of the client.

    Raises:
        Unsupported: this process was forked from one that had made requests.
    """
    global _first_user
    process = os.getpid()
    if _first_user is None:
        _first_user = process
    if _first_user != process:
        message = (
            f"process {process} was forked from {_first_user}, which had used an object store; "
            'start it afresh, as multiprocessing.get_context("spawn") does'
        )
        raise Unsupported(message)
