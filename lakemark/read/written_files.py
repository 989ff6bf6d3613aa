"""Files that a commit wrote."""

from __future__ import annotations

from collections.abc import Iterator

from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_slice import FileGroupId
from lakemark.view.file_lister import DataFile, data_file
from lakemark.view.file_system_view import FileSystemView


def written_paths(commit: CommitMetadata) -> Iterator[str]:
    """Paths from the root of the base files and logs that the commit wrote."""
    return (stat.path for stat in commit.write_stats if stat.path)


def file_at(view: FileSystemView, path: str) -> DataFile | None:
    """The data file at a path, visible or replaced; None if it was removed."""
    folder, _, name = path.rpartition("/")
    named = data_file(folder, name, size_bytes=0)
    group = named and view.groups.get(FileGroupId(folder, named.name.file_id))
    return group.files.get(name) if group else None
