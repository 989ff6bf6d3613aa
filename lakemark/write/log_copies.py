"""Writes the changes of a bucket again, to the buckets by which a pending resize will replace it.

Queries do not read the new file groups before the resize completes. The resize rewrites only the
rows that were stored when it was planned, so the copies contain all later changes. Each copy is the
log of a new file group, which has no base file yet.

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
from lakemark.model.file_names import LogFileName, write_token
from lakemark.model.file_slice import FileGroupId
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.write.new_log_file import NewLogFile
from lakemark.write.partitioner import task_number
from lakemark.write.write_context import WriteContext


@dataclass(frozen=True, slots=True)
class NewBuckets:
    """The buckets that will replace a bucket; can be pickled.

    Attributes:
        ring: the ring of the partition after the pending resize.
        key_fields: the fields of the record key, which are all hashed.
    """

    ring: HashRing
    key_fields: tuple[str, ...]


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
            self._file_of(self._new.ring, number).write(changes.filter(pa.array(numbers == number)))

    def close(self) -> tuple[WriteStat, ...]:
        """Make the logs visible, and return their write stats."""
        return tuple(
            replace(self._files[number].close(), base_file="") for number in sorted(self._files)
        )

    def _file_of(self, ring: HashRing, number: int) -> NewLogFile:
        if number not in self._files:
            group = FileGroupId(ring.partition_path, ring.file_ids[number])
            token = write_token(task_number(group))
            name = LogFileName(group.file_id, self._context.instant, 1, token)
            file = NewLogFile(self._context, group, name)
            self._files[number] = self._opened.enter_context(file)
        return self._files[number]
