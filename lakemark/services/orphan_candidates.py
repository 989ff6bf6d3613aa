"""Lists the files of a table that may be orphans, because they were written long ago.

They are data files, whose names contain an instant, and files that a writer needs only while its
instant is pending: markers, heartbeats and prepared content. Files with other names, outside the
partitions, and of other tables in a folder of the table, are never listed, so files of users and
of other programs are kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from lakemark.storage.storage import ObjectInfo, Storage
from lakemark.timeline.prepared import PREPARED_FOLDER
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER
from lakemark.view.file_lister import DataFile, list_own_files
from lakemark.write.markers import MARKERS_FOLDER

#: The folders of a table with scratch files. Their names, or those of their folders, begin with the
#: requested time of an instant.
_SCRATCH_FOLDERS = (MARKERS_FOLDER, HEARTBEAT_FOLDER, PREPARED_FOLDER)
_INSTANT = re.compile(r"[0-9]{14,}")


@dataclass(frozen=True, slots=True)
class ScratchFile:
    """A file that only the writer of a pending instant needs.

    Attributes:
        info: the file.
        instant: the requested time of the instant.
    """

    info: ObjectInfo
    instant: str


@dataclass(frozen=True, slots=True)
class OrphanCandidates:
    """The files of one table, or of one metadata table, that may be orphans.

    Attributes:
        data: the data files with their parsed names.
        scratch: the markers, heartbeats and prepared content.
        present: the names of all data files that were listed, candidates or not.
    """

    data: tuple[tuple[ObjectInfo, DataFile], ...] = ()
    scratch: tuple[ScratchFile, ...] = ()
    present: frozenset[str] = frozenset()

    def only(self, paths: Collection[str]) -> OrphanCandidates:
        """Return the candidates at these paths."""
        return OrphanCandidates(
            tuple(one for one in self.data if one[0].path in paths),
            tuple(one for one in self.scratch if one.info.path in paths),
            self.present,
        )


def list_candidates(storage: Storage, written_before: datetime) -> OrphanCandidates:
    """List the files of a table that were last written before a time.

    Args:
        storage: the root of the table or of the metadata table.
        written_before: the time, by the clock of the store.
    """
    files = list_own_files(storage)
    old = (
        (info, file)
        for info, file in files
        if info.modified_at < written_before and file.name.is_certain
    )
    present = frozenset(info.name for info, _ in files)
    return OrphanCandidates(tuple(old), tuple(_scratch(storage, written_before)), present)


def _scratch(storage: Storage, written_before: datetime) -> Iterator[ScratchFile]:
    for folder in _SCRATCH_FOLDERS:
        for info in storage.list_tree(folder):
            named = _INSTANT.match(info.path.removeprefix(f"{folder}/"))
            if named is not None and info.modified_at < written_before:
                yield ScratchFile(info, named[0])
