"""Views of parts of a table, whose files are listed only when they are needed.

A selective query needs the file slices of few file groups. So it lists the files of its partitions
in columns, chooses file groups by the names and statistics of their files, and creates Python
objects only for the files of these groups. All files of a file group must be chosen together,
because a slice depends on the other files of its group.

The listing does not change while it is used: it is that of a metadata table as of one timeline,
whose files are immutable. If one of them was deleted in the meantime, listing raises
``SnapshotChanged``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from lakemark.view.file_lister import FILE_NAMES, DataFile, PartitionLister, data_file
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.view_loader import ViewContext


@dataclass(frozen=True)
class PartialViews:
    """The files of a table as of one state of its timeline; each partition is listed only once.

    Attributes:
        lister: lists the files.
        partitions: the paths of all partitions, sorted.
        context: the timeline, and the contents of its instants.
    """

    lister: PartitionLister
    partitions: Sequence[str]
    context: ViewContext
    _listed: dict[str, pa.Table] = field(default_factory=dict, init=False, repr=False)

    def files_in(self, partition_paths: Iterable[str]) -> pa.Table:
        """Return the files of these partitions, as a table with the schema ``FILE_NAMES``.

        Raises:
            SnapshotChanged: the metadata table was compacted in the meantime; open it again.
            CorruptData: bytes of the metadata table do not match the format.
        """
        wanted = list(partition_paths)
        unknown = [path for path in wanted if path not in self._listed]
        if unknown:
            self._listed.update(_by_partition(unknown, self.lister.list_names(unknown)))
        return pa.concat_tables(
            [FILE_NAMES.empty_table(), *(self._listed[path] for path in wanted)]
        )

    def view_of(self, files: pa.Table) -> FileSystemView:
        """Return a view of these files, which has only the file groups of these files.

        Args:
            files: all files of some file groups, with the schema ``FILE_NAMES``.
        """
        return self.context.view_of(_data_files(files))

    def whole(self) -> FileSystemView:
        """Return a view of all files; errors as for ``files_in``."""
        found = _data_files(self.files_in(self.partitions))
        return self.context.view_of({path: found.get(path, []) for path in self.partitions})


def _data_files(files: pa.Table) -> dict[str, list[DataFile]]:
    found: dict[str, list[DataFile]] = {}
    for path, name, size_bytes in zip(*files.to_pydict().values(), strict=True):
        file = data_file(path, name, size_bytes)
        if file is not None:
            found.setdefault(path, []).append(file)
    return found


def _by_partition(paths: Sequence[str], files: pa.Table) -> dict[str, pa.Table]:
    """Return the files of each of these partitions."""
    encoded = files.column("partition_path").combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()
    ordered = files.take(pa.array(np.argsort(codes, kind="stable")))
    ends = np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary))).tolist()
    bounds = zip(encoded.dictionary.to_pylist(), pairwise([0, *ends]), strict=True)
    found = {path: ordered.slice(start, end - start) for path, (start, end) in bounds}
    return {path: found.get(path, FILE_NAMES.empty_table()) for path in paths}
