"""Lets the heartbeats of dead processes expire at once."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from lakemark.model.action import Action
from lakemark.model.instant import Instant
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER

#: Older than any heartbeat of a living process.
_AGE_S = 10_800.0


@contextmanager
def heartbeats_decide(path: Path) -> Iterator[None]:
    """During the block, a process whose heartbeat has expired is dead, however new its instant is.

    An instant that has no heartbeat yet belongs to a living process, unless it builds an index.

    Args:
        path: the path of the table.
    """

    def has_no_heartbeat(instant: Instant, *_: object) -> bool:
        if instant.action is Action.INDEXING:  # no two acts build indexes at the same time
            return False
        return not (path / HEARTBEAT_FOLDER / instant.requested_at).exists()

    with patch("lakemark.transaction.multi_writer.is_fresh", has_no_heartbeat):
        yield


def age_heartbeats(path: Path, living: Collection[str]) -> None:
    """Give every pending instant whose process is dead a heartbeat that has expired.

    An instant without any heartbeat, as Apache Hudi leaves it, would count as alive for a while.

    Args:
        path: the path of the table.
        living: requested times of the instants whose processes live.
    """
    folder = path / HEARTBEAT_FOLDER
    folder.mkdir(exist_ok=True)
    timeline = open_table(StorageLocation(str(path))).timeline
    pending = {i.requested_at for i in timeline.pending() if i.action is not Action.INDEXING}
    for name in ({file.name for file in folder.iterdir()} | pending) - set(living):
        file = folder / name
        is_new = not file.exists()
        if is_new and not name.isdigit():
            continue
        file.touch()
        then = time.time() - _AGE_S
        os.utime(file, (then, then))
