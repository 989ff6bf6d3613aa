"""The data files that are named after one instant: what a rollback deletes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from table.storage.storage import Storage
from table.view.file_lister import data_file, objects_beside_timeline
from table.write.markers import marked_files


def files_of(storage: Storage, instant: str) -> list[str]:
    """Paths (from the table's root) of every data file named after the instant.

    Folders that are no partition yet are searched, too.
    """
    return files_by_instant(storage, [instant])[instant]


def files_by_instant(storage: Storage, instants: Collection[str]) -> dict[str, list[str]]:
    """The same of several instants, with one listing of the table."""
    found = {instant: set(marked_files(storage, instant)) for instant in instants}
    for info in objects_beside_timeline(storage):
        file = data_file(info.folder, info.name, info.size_bytes)
        if file is not None and file.name.instant in found:
            found[file.name.instant].add(info.path)
    return {instant: sorted(paths) for instant, paths in found.items()}


def as_planned(storage: Storage, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The same files as plans name them: absolute, by partition."""
    root = storage.location.url.rstrip("/")
    partitions: dict[str, tuple[str, ...]] = {}
    for path in paths:
        partition = path.rpartition("/")[0]
        partitions[partition] = (*partitions.get(partition, ()), f"{root}/{path}")
    return partitions


def names_of(files: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The files of a plan by their names alone."""
    return {folder: [path.rpartition("/")[2] for path in paths] for folder, paths in files.items()}
