"""Writes the changes of a bucket again, to the buckets by which a pending resize will replace it.

Queries do not read the new file groups before the resize completes. The resize rewrites only the
rows that were stored when it was planned, so the copies contain all later changes. Each copy is the
log of a new file group, which has no base file yet. As in Apache Hudi, its name contains the
instant of the resize, not that of the commit. So readers ignore it until the resize completes, and
then it belongs to the slice that the resize created. Its blocks contain the instant of the commit.

Source: ``SparkConsistentBucketDuplicateUpdateStrategy`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from lakemark.index.hash_ring import HashRing
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import FileGroupId
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.write.new_log_file import NewLogFile
from lakemark.write.partitioner import series_of_log, task_number
from lakemark.write.write_context import WriteContext


@dataclass(frozen=True, slots=True)
class NewBuckets:
    """The buckets that will replace a bucket; can be pickled.

    Attributes:
        resize: the requested time of the pending resize.
        ring: the ring of the partition after it.
        key_fields: the fields of the record key, which are all hashed.
        log_version: the version in the names of the logs, later than that of earlier copies.
            Buckets that are merged into one have different versions, because each of them is
            written by a task of its own.
    """

    resize: str
    ring: HashRing
    key_fields: tuple[str, ...]
    log_version: int = 1


class LogCopies:
    """The logs of the new buckets, to which the changes of one old bucket are written.

    As with ``UnfinishedFile``, files that were not closed are discarded on exit.
    """

    def __init__(self, context: WriteContext, new: NewBuckets | None) -> None:
        """Begin without a file. Without new buckets, nothing is written."""
        self._context, self._new = context, new
        self._files: dict[int, NewLogFile] = {}
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.close()

    def write(self, changes: pa.Table) -> None:
        """Append folded changes of the old bucket to the logs of their new buckets."""
        if self._new is None:
            return
        keys = changes.column(RECORD_KEY)
        numbers = self._new.ring.buckets_of_keys(keys, self._new.key_fields)
        for number in np.unique(numbers).tolist():
            self._file_of(self._new, number).write(changes.filter(pa.array(numbers == number)))

    def close(self) -> tuple[WriteStat, ...]:
        """Make the logs visible, and return their write stats."""
        return tuple(
            replace(self._files[number].close(), base_file="") for number in sorted(self._files)
        )

    def _file_of(self, new: NewBuckets, number: int) -> NewLogFile:
        if number not in self._files:
            group = FileGroupId(new.ring.partition_path, new.ring.file_ids[number])
            # As in version 6, the time of day makes the names of two writers' logs differ. The 1
            # makes them differ from the files of all attempts to execute the resize.
            token = f"{task_number(group)}-{int(self._context.instant[8:])}-1"
            name = LogFileName(group.file_id, new.resize, new.log_version, token)
            file = NewLogFile(self._context, group, name, series=series_of_log(group, name))
            self._files[number] = self._opened.enter_context(file)
        return self._files[number]
