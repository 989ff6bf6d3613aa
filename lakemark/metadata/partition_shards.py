"""The file groups of a record index whose keys are unique only within a partition of the table.

Each partition of the data table has its own series of file groups (``shards``) in the partition
``record_index`` of the metadata table. Their ids are ``record-index-<path>-<number>-0``, where the
characters that Hive escapes in the path, ``_`` and ``-`` are written ``%XX``. In a table without
partitions the path is empty. The commit that adds a partition to the table creates the file groups
of the partition.

Source: ``getFileIDForFileGroup`` of ``HoodieTableMetadataUtil``, ``escapeFileName`` of
``PartitionPathEncodeUtils`` and ``initializeNewFileGroupsForPartitionedRLIHelper`` of
``HoodieBackedTableMetadataWriter``, Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from lakemark.errors import Unsupported
from lakemark.keygen.partition_path import MAX_FOLDER_NAME_BYTES, escape
from lakemark.metadata.record_changes import RecordChanges, ShardChanges
from lakemark.metadata.shards import file_ids, parse_file_id, shard_series
from lakemark.model.file_slice import FileSlice

#: The prefix of the file ids of every record index.
RECORD_INDEX_PREFIX = "record-index-"

#: The number of file groups of a partition without records, and the largest number for a number of
#: records (``hoodie.metadata.record.level.index.min.filegroup.count`` and
#: ``….max.filegroup.count``). A new index has more for long keys (``new_index``).
MIN_GROUPS, MAX_GROUPS = 1, 10

_ALSO_ESCAPED = str.maketrans({"_": "%5F", "-": "%2D"})

#: The longest escaped path, in bytes. File names add the prefix, the number of the file group, an
#: instant, a write token and an extension, and file systems have the same limit for names of files
#: and of folders.
MAX_ESCAPED_BYTES = MAX_FOLDER_NAME_BYTES - 64


def check_path(partition_path: str) -> None:
    """Check that the index can have file groups for a partition of the data table.

    Raises:
        Unsupported: the path contains a dot, so that no reader would recognise the names of logs
            (Apache Hudi 1.2.0 fails to write to such a partition); or it is so long that file
            systems would refuse the names of files.
    """
    if "." in partition_path:
        reason = "has a dot in its path"
    elif is_too_long(partition_path):
        reason = (
            f"has a path of more than {MAX_ESCAPED_BYTES} bytes with its special characters "
            "written %XX"
        )
    else:
        return
    message = (
        f"partition {partition_path!r} {reason}, so that a partitioned record index cannot have "
        "files for it; use a record index of the whole table, or drop the index (lakemark table "
        "index drop TABLE record_index --run)"
    )
    raise Unsupported(message)


def is_too_long(partition_path: str) -> bool:
    """Return whether the names of the files for a partition would be too long."""
    return len(_escaped(partition_path).encode()) > MAX_ESCAPED_BYTES


def series_prefix(partition_path: str) -> str:
    """Return the prefix of the ids of the file groups of a partition of the data table.

    Raises:
        Unsupported: see ``check_path``.
    """
    check_path(partition_path)
    return f"{RECORD_INDEX_PREFIX}{_escaped(partition_path)}-"


def path_of_series(prefix: str) -> str:
    """Return the path of the partition whose file groups have ids with this prefix."""
    return unquote(prefix.removeprefix(RECORD_INDEX_PREFIX).removesuffix("-"))


def series_of_paths(slices: Iterable[FileSlice]) -> dict[str, list[FileSlice]]:
    """Return the file groups of each partition of the data table, in the order of their numbers.

    Raises:
        CorruptData: as for ``shards.by_shard``.
    """
    return {path_of_series(prefix): series for prefix, series in shard_series(slices).items()}


def has_no_series(path: str) -> str:
    """Return what is wrong with an index that has no file groups for a partition with files."""
    return f"its record index has no file groups for partition {path!r}, which has files"


def count_new_groups(
    paths: Iterable[str], counts: Mapping[str, int], list_ids: Callable[[], Iterable[str]]
) -> dict[str, int]:
    """Return the number of file groups to create for each partition that has none.

    Another writer, which has not completed, may have created file groups of the same partition.
    Then the new ones have the same number, so that a rollback of either writer leaves a whole
    series.

    Args:
        paths: the partitions that a commit writes.
        counts: the number of file groups of each partition that has any.
        list_ids: returns the ids of all stored file groups, also those of other writers.
    """
    new = set(paths) - counts.keys()
    stored = _stored_counts(list_ids()) if new else {}
    return {path: max(MIN_GROUPS, stored.get(series_prefix(path), 0)) for path in new}


@dataclass(frozen=True, slots=True)
class PartitionedChanges:
    """The changes of one commit to a record index whose keys are unique only within a partition.

    Attributes:
        by_path: the changes of each partition that the commit writes, by path; they may be empty.
        counts: the number of file groups of each of these partitions, before the commit.
        new_counts: the number of file groups to create for each partition that had none.
    """

    by_path: Mapping[str, RecordChanges]
    counts: Mapping[str, int]
    new_counts: Mapping[str, int]

    def shards(self) -> Iterator[ShardChanges]:
        """Divide the changes among the file groups, and yield all new file groups."""
        for path, changes in self.by_path.items():
            is_new = path in self.new_counts
            count = self.new_counts[path] if is_new else self.counts[path]
            ids = file_ids(series_prefix(path), count)
            parts = zip(ids, changes.by_shard(count), strict=True)
            for number, (file_id, part) in enumerate(parts):
                if is_new or not part.is_empty:
                    yield ShardChanges(file_id, number, part, is_new)


def _escaped(partition_path: str) -> str:
    return escape(partition_path).translate(_ALSO_ESCAPED)


def _stored_counts(ids: Iterable[str]) -> Mapping[str, int]:
    """Return the number of file groups for each prefix of ids, of which some may be missing."""
    counts: defaultdict[str, int] = defaultdict(int)
    for file_id in ids:
        parsed = parse_file_id(file_id)
        if parsed is not None:
            prefix, number = parsed
            counts[prefix] = max(counts[prefix], number + 1)
    return counts
