"""One file slice becomes one base file: the work of a compaction, in a worker."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakemark.errors import CorruptData
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.compaction_plan import CompactionOperation
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile, join
from lakemark.model.meta_columns import FILE_NAME
from lakemark.services.compaction import SliceRewrite
from lakemark.storage import Storage
from lakemark.view.file_lister import DataFile, data_file
from lakemark.write.file_group_write import write_base_file
from lakemark.write.write_context import WriteContext


@dataclass(frozen=True)
class SliceRewriter:
    """Rewrites the slices of one compaction; pickles.

    Attributes:
        context: of the compaction: its instant names the new files.
    """

    context: WriteContext

    def __call__(self, task: SliceRewrite) -> WriteStat:
        """Merge one slice and write its base file; winning rows keep their commit time."""
        context = self.context
        file_slice = slice_of(task.operation, context.storage)
        # Every row gets the new file's name. The old ones are as long as some rows.
        kept = [name for name in context.schema.names if name != FILE_NAME]
        merged = context.reader.merge(file_slice, kept)
        stat = write_base_file(context, file_slice.group, merged, replaces=file_slice)
        return replace(
            stat,
            total_log_files_compacted=len(file_slice.logs),
            total_log_size_compacted=file_slice.log_bytes,
        )


def slice_of(operation: CompactionOperation, storage: Storage) -> FileSlice:
    """The slice that a plan names, whatever has been written to its group since.

    Raises:
        CorruptData: the plan names something that is no data file, or a file that is gone.
    """
    group = operation.group
    names = [operation.data_file] if operation.data_file else []
    files = [_file(group, name, storage) for name in (*names, *operation.log_files)]
    bases = [file for file in files if isinstance(file, BaseFile)]
    logs = tuple(file for file in files if isinstance(file, LogFile))
    return FileSlice(group, operation.base_instant, bases[0] if bases else None, logs)


def _file(group: FileGroupId, name: str, storage: Storage) -> DataFile:
    """A file of a plan with its true size: without it a log would be read as empty."""
    info = storage.head(join(group.partition_path, name))
    file = data_file(group.partition_path, name, info.size_bytes) if info else None
    if file is None:
        place = f"compaction plan of {group}"
        raise CorruptData(place, None, f"a data file {name!r}", "none of that name")
    return file
