"""Markers: an empty object for every data file that an instant is about to write.

``.hoodie/.temp/<instant>/<partition>/<dataFileName>.marker.CREATE``, created before the data file,
so that whoever finds the instant dead, Apache Hudi included, knows what it may have left. Log
files of table version 8 and later are marked CREATE too, those of version 6 APPEND: Apache Hudi
undoes their blocks by another block, this project deletes what no other commit wrote to. Source:
``DirectWriteMarkers``.
"""

from __future__ import annotations

from lakemark.model.file_slice import join
from lakemark.storage.storage import AlreadyExists, Storage
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import PARTITION_METAFILE

_FOLDER = ".hoodie/.temp"
_CREATED, _APPENDED = ".marker.CREATE", ".marker.APPEND"


def mark(storage: Storage, instant: str, data_path: str, *, names_slice: bool = False) -> None:
    """Announce a data file; a second attempt finds its own marker.

    Args:
        storage: of the table.
        instant: what writes it.
        data_path: from the table's root.
        names_slice: whether it is a log of table version 6.
    """
    suffix = _APPENDED if names_slice else _CREATED
    storage.create(f"{join(f'{_FOLDER}/{instant}', data_path)}{suffix}", b"")


def marked_files(storage: Storage, instant: str) -> list[str]:
    """Paths (from the table's root) of the data files that the instant announced."""
    folder = f"{_FOLDER}/{instant}/"
    paths = (info.path for info in storage.list_tree(folder.rstrip("/")))
    return [p.removeprefix(folder).rsplit(".marker.", 1)[0] for p in paths if ".marker." in p]


def drop_markers(storage: Storage, instant: str) -> None:
    """Forget an instant's markers, once it completed or none of its files are left."""
    storage.delete([info.path for info in storage.list_tree(f"{_FOLDER}/{instant}")])


def drop_markers_before(storage: Storage, timeline: Timeline) -> None:
    """Forget markers of instants that are older than the timeline and not on it any more."""
    for folder in storage.list_folder(_FOLDER)[0]:
        instant = folder.rstrip("/").rpartition("/")[2]
        if instant < (timeline.start or "") and timeline.find(instant) is None:
            drop_markers(storage, instant)


def mark_partition(storage: Storage, instant: str, partition_path: str) -> None:
    """Make a folder a partition: listings recognise only those that hold this file.

    Source: ``HoodiePartitionMetadata``. Whoever comes first wins; the content is a hint only.
    """
    depth = partition_path.count("/") + 1 if partition_path else 0
    text = f"#partition metadata\ncommitTime={instant}\npartitionDepth={depth}\n"
    try:
        storage.create(join(partition_path, PARTITION_METAFILE), text.encode())
    except AlreadyExists:
        return
