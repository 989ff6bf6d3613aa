"""The order in which the files of a dropped metadata table are deleted.

The process that deletes them may die after any deletion, and a writer of Apache Hudi may come next.
That writer deletes only the folders of the partitions that it creates. It keeps the instants that
it finds, and takes them for instants of the new metadata table. A completed instant does no harm
there, because a writer only asks which commits are valid. A pending compaction does harm, because
the writer would execute its plan, whose files are gone. So no instant may become pending because
the file of its completion was deleted first, and no plan may be lost before its instant.
Source: ``initializeFromFilesystem`` and ``clearExistingMetadataPartition`` of
``HoodieBackedTableMetadataWriter``, and ``LSMTimeline`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import IntEnum, auto

from lakemark.config.table_properties import PROPERTIES_PATH
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.model.action import State
from lakemark.timeline.layout import LayoutV1, LayoutV2
from lakemark.timeline.lsm_manifest import MANIFEST_PREFIX, VERSION_FILE


class _Step(IntEnum):
    """The steps in their order. An object store may execute the deletions of a step in any order.

    The properties are first, so that a process that opens the metadata table finds that it was
    dropped. The partitions are last, because readers ignore them if there is no instant, and
    writers delete them. In the history, a file is deleted before the files that it names.
    """

    PROPERTIES = auto()
    INFLIGHT = auto()
    REQUESTED = auto()
    COMPLETED = auto()
    VERSION = auto()
    MANIFEST = auto()
    OTHER = auto()


_FOLDERS = tuple(f"{METADATA_FOLDER}/{layout.folder}" for layout in (LayoutV1(), LayoutV2()))
_PARSER = LayoutV2()  # it also parses the names of layout 1
_STEPS_OF_STATES = {
    State.INFLIGHT: _Step.INFLIGHT,
    State.REQUESTED: _Step.REQUESTED,
    State.COMPLETED: _Step.COMPLETED,
}


def steps_of_deletion(paths: Iterable[str]) -> list[list[str]]:
    """Return the paths of a metadata table's files in the steps in which they are deleted.

    Args:
        paths: the paths of all its files, relative to the data table's root.
    """
    steps: defaultdict[_Step, list[str]] = defaultdict(list)
    for path in sorted(paths):
        steps[_step_of(path)].append(path)
    return [steps[step] for step in sorted(steps)]


def _step_of(path: str) -> _Step:
    folder, _, name = path.rpartition("/")
    instant = _PARSER.parse(name) if folder in _FOLDERS else None
    if instant is not None:
        return _STEPS_OF_STATES[instant.state]
    if path == f"{METADATA_FOLDER}/{PROPERTIES_PATH}":
        return _Step.PROPERTIES
    if name == VERSION_FILE:
        return _Step.VERSION
    return _Step.MANIFEST if name.startswith(MANIFEST_PREFIX) else _Step.OTHER
