"""Detects before a file group is written that an earlier commit is writing it, too.

Both commits would conflict, and the one that completes last would be written in vain. A commit
therefore looks for the markers of the commits that were pending when it began, if it is configured
to do so. Only the later of two commits looks for the earlier one, so that one of them continues.
The commit may still conflict with a file that the other one writes after the check.

Source: ``SimpleDirectMarkerBasedDetectionStrategy`` and ``MarkerUtils.getCandidateInstants`` of
Apache Hudi 1.2.0.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from lakemark.errors import WriteConflict
from lakemark.index.bucket import bucket_or_file_id
from lakemark.model.file_slice import FileGroupId
from lakemark.storage import Storage
from lakemark.view.file_lister import data_file
from lakemark.write.markers import marked_names

_PAUSE_S = 0.2

#: How long the markers of a commit are not listed again. The file groups of a batch are checked one
#: after the other, and conflicts that are missed here are detected when the commit is published.
_LISTING_LASTS_S = 1.0

#: The markers that this process listed last, by table, commit and partition, and when.
_listed: dict[tuple[str, str, str], tuple[float, list[str]]] = {}
_MOST_LISTINGS = 1000


@dataclass(frozen=True, slots=True)
class Rival:
    """A commit of another writer that began earlier and was pending when ours began.

    Attributes:
        instant: the requested time of the commit.
        heartbeat_path: the file that its writer updates.
        expires_after_s: the age in seconds at which the last heartbeat expires.
    """

    instant: str
    heartbeat_path: str
    expires_after_s: float

    def is_alive(self, storage: Storage) -> bool:
        """Return whether the writer has a heartbeat, that is, has neither finished nor died."""
        heartbeat = storage.head(self.heartbeat_path)
        if heartbeat is None:
            return False
        silent_s = (datetime.now(UTC) - heartbeat.modified_at).total_seconds()
        return silent_s <= self.expires_after_s

    def wait(self, storage: Storage, at_most_s: float) -> None:
        """Wait until the writer has finished or died, or until a time has passed."""
        deadline_s = time.monotonic() + at_most_s
        while self.is_alive(storage) and time.monotonic() < deadline_s:
            time.sleep(_PAUSE_S)


class EarlyConflict(WriteConflict):
    """A commit that began earlier is writing the same file group.

    Attributes:
        rival: the other commit.
    """

    def __init__(self, group: FileGroupId, rival: Rival) -> None:
        super().__init__(
            f"file group {group.file_id} of partition {group.partition_path!r} is being written by "
            f"commit {rival.instant}, which began earlier; write the batch again after that commit"
        )
        self.rival = rival


def _marked_names(storage: Storage, instant: str, partition_path: str) -> list[str]:
    """Return what ``marked_names`` returns, or has just returned for another file group."""
    key, now_s = (storage.location.url, instant, partition_path), time.monotonic()
    listed_s, names = _listed.get(key, (-_LISTING_LASTS_S, []))
    if now_s - listed_s > _LISTING_LASTS_S:
        if len(_listed) >= _MOST_LISTINGS:
            _listed.clear()
        names = marked_names(storage, instant, partition_path)
        _listed[key] = now_s, names
    return names


def check_rivals(storage: Storage, rivals: Iterable[Rival], group: FileGroupId) -> None:
    """Check that no living writer has begun to write a file of a file group.

    In a table with a bucket index, all file groups of a bucket count as one.

    Raises:
        EarlyConflict: a rival's writer is alive and has a marker of the file group.
    """
    ours = bucket_or_file_id(group.file_id)
    for rival in rivals:
        names = _marked_names(storage, rival.instant, group.partition_path)
        files = (data_file(group.partition_path, name, 0) for name in names)
        theirs = {bucket_or_file_id(file.name.file_id) for file in files if file is not None}
        if ours in theirs and rival.is_alive(storage):
            raise EarlyConflict(group, rival)
