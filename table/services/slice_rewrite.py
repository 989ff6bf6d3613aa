"""One file slice becomes one base file: the work of a compaction, in a worker."""

from __future__ import annotations

from dataclasses import dataclass, replace

from table.errors import CorruptData
from table.model.commit_metadata import WriteStat
from table.model.compaction_plan import CompactionOperation
from table.model.file_names import BaseFileName, LogFileName
from table.model.file_slice import BaseFile, FileSlice, LogFile
from table.read.file_group_reader import FileGroupReader
from table.services.compaction import SliceRewrite
from table.write.file_group_write import WriteContext, write_base_file


@dataclass(frozen=True)
class SliceRewriter:
    """Rewrites the slices of one compaction; pickles.

    Attributes:
        context: of the compaction: its instant names the new files.
    """

    context: WriteContext

    def __call__(self, task: SliceRewrite) -> WriteStat:
        """Merge one slice and write its base file; winning rows keep their commit time."""
        file_slice = slice_of(task.operation)
        context = self.context
        reader = FileGroupReader(context.storage, context.schema, context.merger)
        merged = reader.merge(file_slice)
        stat = write_base_file(context, file_slice.group, merged, replaces=file_slice)
        return replace(
            stat,
            total_log_files_compacted=len(file_slice.logs),
            total_log_size_compacted=file_slice.log_bytes,
        )


def slice_of(operation: CompactionOperation) -> FileSlice:
    """The slice that a plan names, whatever has been written to its group since."""
    partition = operation.group.partition_path
    base = operation.data_file and BaseFileName.parse(operation.data_file)
    logs = [LogFileName.parse(name) for name in operation.log_files]
    if None in logs or (operation.data_file and base is None):
        place = f"compaction plan of {operation.group}"
        raise CorruptData(place, None, "names of base and log files", str(operation))
    return FileSlice(
        operation.group,
        operation.base_instant,
        BaseFile(partition, base, 0) if base else None,
        tuple(LogFile(partition, log, 0) for log in logs if log is not None),
    )
