"""Markers: an empty object for every data file that an instant is about to write.

``.hoodie/.temp/<instant>/<partition>/<dataFileName>.marker.CREATE``, created before the data file.
When a writer, lakemark or Apache Hudi, rolls back the instant of a dead writer, the markers list
the files that it may have written. Log files of table version 8 and later have the type CREATE too,
those of version 6 APPEND. Apache Hudi rolls back their blocks by a rollback block; lakemark deletes
the log files that no other commit wrote to. Source: ``DirectWriteMarkers``.
"""

from __future__ import annotations

from lakemark.model.file_slice import join
from lakemark.storage.storage import AlreadyExists, Storage
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import PARTITION_METAFILE

_FOLDER = ".hoodie/.temp"
_CREATED, _APPENDED = ".marker.CREATE", ".marker.APPEND"


def create_marker(
    storage: Storage, instant: str, data_path: str, *, names_slice: bool = False
) -> None:
    """Create the marker of a data file; a second attempt finds its own marker.

    Args:
        storage: storage of the table.
        instant: instant of the file.
        data_path: from the table's root.
        names_slice: whether the file is a log of table version 6.
    """
    suffix = _APPENDED if names_slice else _CREATED
    storage.create(f"{join(f'{_FOLDER}/{instant}', data_path)}{suffix}", b"")


def marked_files(storage: Storage, instant: str) -> list[str]:
    """Return paths (from the table's root) of the data files that the instant marked."""
    folder = f"{_FOLDER}/{instant}/"
    paths = (info.path for info in storage.list_tree(folder.rstrip("/")))
    return [p.removeprefix(folder).rsplit(".marker.", 1)[0] for p in paths if ".marker." in p]


def drop_markers(storage: Storage, instant: str) -> None:
    """Delete an instant's markers, once it completed or none of its files exist."""
    storage.delete([info.path for info in storage.list_tree(f"{_FOLDER}/{instant}")])


def drop_markers_before(storage: Storage, timeline: Timeline) -> None:
    """Delete markers of instants that are older than the timeline and no longer on it."""
    for folder in storage.list_folder(_FOLDER)[0]:
        instant = folder.rstrip("/").rpartition("/")[2]
        if instant < (timeline.start or "") and timeline.find(instant) is None:
            drop_markers(storage, instant)


def create_partition_metafile(storage: Storage, instant: str, partition_path: str) -> None:
    """Make a folder a partition: listings recognise only folders with this file.

    Source: ``HoodiePartitionMetadata``. The first writer creates it; the content is only a hint.
    """
    depth = partition_path.count("/") + 1 if partition_path else 0
    text = f"#partition metadata\ncommitTime={instant}\npartitionDepth={depth}\n"
    try:
        storage.create(join(partition_path, PARTITION_METAFILE), text.encode())
    except AlreadyExists:
        return
