"""Markers: empty objects that record which data files an instant may have written.

A writer creates ``.hoodie/.temp/<instant>/<partition>/<dataFileName>.marker.CREATE`` before it
creates the data file. If the writer dies, lakemark or Apache Hudi rolls back its instant, and finds
in the markers which files to delete.

Log files of table version 6 have markers of type ``APPEND``; all other files have type ``CREATE``.
To roll back a log of version 6, Apache Hudi appends a rollback block. lakemark instead deletes
the logs to which no other commit has written. Source: ``DirectWriteMarkers``.
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
    """Create the marker of a data file. The marker may exist already, from an earlier attempt.

    Args:
        storage: storage of the table.
        instant: instant that writes the file.
        data_path: path of the data file, relative to the table's root.
        names_slice: whether the file is a log of table version 6.
    """
    suffix = _APPENDED if names_slice else _CREATED
    storage.create(f"{join(f'{_FOLDER}/{instant}', data_path)}{suffix}", b"")


def marked_files(storage: Storage, instant: str) -> list[str]:
    """Return the paths, relative to the table's root, of the data files with a marker."""
    folder = f"{_FOLDER}/{instant}/"
    paths = (info.path for info in storage.list_tree(folder.rstrip("/")))
    return [p.removeprefix(folder).rsplit(".marker.", 1)[0] for p in paths if ".marker." in p]


def drop_markers(storage: Storage, instant: str) -> None:
    """Delete the markers of an instant that is completed, or whose data files are deleted."""
    storage.delete([info.path for info in storage.list_tree(f"{_FOLDER}/{instant}")])


def drop_markers_before(storage: Storage, timeline: Timeline) -> None:
    """Delete the markers of instants that are older than the active timeline and not on it."""
    for folder in storage.list_folder(_FOLDER)[0]:
        instant = folder.rstrip("/").rpartition("/")[2]
        if instant < (timeline.start or "") and timeline.find(instant) is None:
            drop_markers(storage, instant)


def create_partition_metafile(storage: Storage, instant: str, partition_path: str) -> None:
    """Create the partition metafile of a folder, if there is none.

    Readers recognise only folders with this file as partitions, and its content is only a hint.
    Source: ``HoodiePartitionMetadata``.
    """
    depth = partition_path.count("/") + 1 if partition_path else 0
    text = f"#partition metadata\ncommitTime={instant}\npartitionDepth={depth}\n"
    try:
        storage.create(join(partition_path, PARTITION_METAFILE), text.encode())
    except AlreadyExists:
        return
