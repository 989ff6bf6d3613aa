"""Markers: empty objects that record which data files an instant may have written.

A writer creates ``.hoodie/.temp/<instant>/<partition>/<dataFileName>.marker.CREATE`` before it
creates the data file. If the writer dies, lakemark or Apache Hudi rolls back its instant, and finds
in the markers which files to delete.

Log files of table version 6 have markers of type ``APPEND``; all other files have type ``CREATE``.
To roll back a log of version 6, Apache Hudi appends a rollback block. lakemark instead deletes
the logs to which no other commit has written. Source: ``DirectWriteMarkers``.
"""

from __future__ import annotations

import re

from lakemark.model.file_slice import join
from lakemark.storage.storage import AlreadyExists, NotFound, Storage
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import PARTITION_METAFILE

#: The folder of the markers; each instant has a folder in it.
MARKERS_FOLDER = ".hoodie/.temp"
_CREATED, _APPENDED = ".marker.CREATE", ".marker.APPEND"

#: A file with the markers that Apache Hudi's timeline server has created.
_SHARED_MARKERS = re.compile(r"MARKERS\d+")


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
    storage.create(f"{join(f'{MARKERS_FOLDER}/{instant}', data_path)}{suffix}", b"")


def marked_files(storage: Storage, instant: str) -> list[str]:
    """Return the paths, relative to the table's root, of the data files with a marker."""
    folder = f"{MARKERS_FOLDER}/{instant}/"
    paths = (info.path for info in storage.list_tree(folder.rstrip("/")))
    return [p.removeprefix(folder).rsplit(".marker.", 1)[0] for p in paths if ".marker." in p]


def marked_names(storage: Storage, instant: str, partition_path: str) -> list[str]:
    """Return the names of the data files of a partition with a marker.

    Markers of Apache Hudi's timeline server are included. They are lines of the files
    ``MARKERS<n>`` (``MarkerUtils``).
    """
    folder = f"{MARKERS_FOLDER}/{instant}"
    _, shared = storage.list_folder(folder)
    lists = [info.path for info in shared if _SHARED_MARKERS.fullmatch(info.name)]
    lines = (line for path in lists for line in _lines_of(storage, path))
    of_server = (line.rpartition("/") for line in lines)
    names = [name for path, _, name in of_server if path == partition_path]
    _, own = storage.list_folder(join(folder, partition_path))
    names += [info.name for info in own]
    return [name.partition(".marker.")[0] for name in names if ".marker." in name]


def _lines_of(storage: Storage, path: str) -> list[str]:
    """Return the lines of a file; none if the commit has completed and its markers are deleted."""
    try:
        return storage.read(path).decode().splitlines()
    except NotFound:
        return []


def drop_markers(storage: Storage, instant: str) -> None:
    """Delete the markers of an instant that is completed, or whose data files are deleted."""
    storage.delete([info.path for info in storage.list_tree(f"{MARKERS_FOLDER}/{instant}")])


def drop_markers_before(storage: Storage, timeline: Timeline) -> None:
    """Delete the markers of instants that are older than the active timeline and not on it."""
    for folder in storage.list_folder(MARKERS_FOLDER)[0]:
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
