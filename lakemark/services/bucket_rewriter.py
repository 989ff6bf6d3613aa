"""Rewrites the rows of buckets into the buckets of a changed hash ring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.errors import Refused
from lakemark.execution.interleave import read_ahead
from lakemark.execution.runner import LocalRunner
from lakemark.index.hash_ring import HashRing
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.meta_columns import FILE_NAME, RECORD_KEY
from lakemark.services.planned_files import live_rows
from lakemark.write.new_base_file import NewBaseFile
from lakemark.write.write_context import WriteContext

#: The number of files of one task that are encoded at the same time.
_WRITERS = 2


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """A group of a resize plan.

    Attributes:
        slices: the file slices whose rows are rewritten.
        ring: the ring after the resize.
        new_file_ids: the ids of the file groups that get the rows.
    """

    slices: tuple[FileSlice, ...]
    ring: HashRing
    new_file_ids: tuple[str, ...]


@dataclass(frozen=True)
class BucketRewriter:
    """Rewrites the groups of one resize in a worker; can be pickled.

    Attributes:
        context: write context of the resize; new files are named after its instant.
        key_fields: the fields of the record key, which are all hashed.
        log_sizes: see ``recorded_log_sizes``.
        target: write context of the new files, if it is another one.
    """

    context: WriteContext
    key_fields: tuple[str, ...]
    log_sizes: Mapping[str, int] = field(default_factory=dict)
    target: WriteContext | None = None

    def __call__(self, task: RewriteTask) -> list[WriteStat]:
        """Write the live rows of the slices to new base files; rows keep their commit time.

        The rows are read once. A bucket without rows gets no file, as in Apache Hudi.

        Raises:
            Refused: a row was stored in another bucket than that of its key.
            CorruptData: a file of the plan is damaged or missing.
        """
        files: dict[int, NewBaseFile] = {}
        target, path = self.target or self.context, task.ring.partition_path
        with ExitStack() as opened, closing(read_ahead(lambda: self._rows(task))) as arriving:
            for rows in arriving:
                numbers = task.ring.buckets_of_keys(rows.column(RECORD_KEY), self.key_fields)
                found = np.unique(numbers).tolist()
                for number in found:
                    if number not in files:
                        group = FileGroupId(path, task.ring.file_ids[number])
                        check_expected(group, task)
                        files[number] = opened.enter_context(NewBaseFile(target, group))
                parts = [(files[n], rows, numbers == n) for n in found]
                LocalRunner(_WRITERS).map(_write, parts)
            return LocalRunner(_WRITERS).map(NewBaseFile.close, [files[n] for n in sorted(files)])

    def _rows(self, task: RewriteTask) -> Iterator[pa.Table]:
        # Every row gets the new file's name, so the old names are not read.
        kept = [name for name in self.context.schema.names if name != FILE_NAME]
        return live_rows(self.context, task.slices, kept, self.log_sizes)


def _write(part: tuple[NewBaseFile, pa.Table, npt.NDArray[np.bool_]]) -> None:
    file, rows, are_of_file = part
    file.write(rows.filter(pa.array(are_of_file)))


def check_expected(group: FileGroupId, task: RewriteTask) -> None:
    """Check that rows of the task's slices may belong to a file group."""
    if group.file_id not in task.new_file_ids:
        message = (
            f"rows of {task.slices[0].group} belong to {group} by the hashes of their record keys; "
            "lakemark hashes all fields of the record key; if the table hashes other fields "
            "(hoodie.bucket.index.hash.field), resize its buckets with Apache Hudi"
        )
        raise Refused(message)
