"""Writes the log files of a file group: their markers, their changes and their write stats.

A log that has exceeded its largest size is closed, and the next changes go to a log with the next
version. Each log has a write stat, which also lists the logs before it. Source:
``HoodieLogFormatWriter.rolloverIfNeeded``, ``HoodieAppendHandle`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from lakemark.config.table_properties import MergeMode
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import FileGroupId, join
from lakemark.write.event_times import EventTimes
from lakemark.write.log_file_writer import LogFileWriter
from lakemark.write.markers import create_marker
from lakemark.write.meta_column_values import set_meta_columns
from lakemark.write.partitioner import series_number
from lakemark.write.unfinished_file import UnfinishedFile
from lakemark.write.write_context import WriteContext

#: The size of a log is checked after so many bytes of Arrow memory, the largest block of Apache
#: Hudi (``hoodie.logfile.data.block.max.size``). The blocks themselves are smaller.
_PIECE_BYTES = 256 << 20


class NewLogFile(UnfinishedFile):
    """A log file that a commit or a log compaction writes.

    Attributes:
        name: the name of the file.
        next_row: the number of the next row.
    """

    def __init__(
        self,
        context: WriteContext,
        group: FileGroupId,
        name: LogFileName,
        replaced_instants: Sequence[str] = (),
        first_row: int = 0,
    ) -> None:
        """Create the marker, and begin the file.

        Args:
            context: the commit or log compaction.
            group: the file group.
            name: the name of the file.
            replaced_instants: the instants of the blocks that the file replaces.
            first_row: the number of the first row of the file among all rows of the commit in the
                file group.
        """
        self._context, self._group, self.name = context, group, name
        self._series = series_number(group)
        self._path = join(group.partition_path, str(name))
        self.next_row = first_row
        self._event_times = EventTimes(context.event_time_column)
        names_slice = context.version.logs_name_their_slice
        create_marker(context.storage, context.instant, self._path, names_slice=names_slice)
        self._writer = LogFileWriter(
            context.storage,
            self._path,
            context.instant,
            context.schema,
            context.avro_schema,
            context.log_format,
            context.merge.ordering_fields,
            is_event_time=context.merge.mode is not MergeMode.COMMIT_TIME,
            indexed=context.indexed,
            settings=context.base_files,
            stores_meta_columns=context.virtual_keys is None,
            replaced_instants=replaced_instants,
        )

    def write(self, changes: pa.Table) -> None:
        """Append folded changes. Rows without a commit time get the time of the instant."""
        instant, first_row, file_id = self._context.instant, self.next_row, self._group.file_id
        self._event_times.add_changes(changes)
        self._writer.append(set_meta_columns(changes, instant, self._series, file_id, first_row))
        self.next_row += changes.num_rows

    @property
    def is_full(self) -> bool:
        """Whether the file is larger than a log may become before the next one is begun."""
        return self._writer.size_bytes > self._context.max_log_bytes

    def abort(self) -> None:
        """Discard the file, unless it was closed."""
        self._writer.abort()

    def close(self) -> WriteStat:
        """Make the file visible, and return its write stat, in which it is the only listed file.

        Raises:
            ContentMismatch: a file with other bytes exists at the path.
        """
        status = self._writer.close()
        stat = replace(
            status.describe(self._group, self._path),
            prev_commit=self.name.instant,
            num_update_writes=status.num_writes,
            log_version=self.name.version,
            log_offset=0,
            log_files=(str(self.name),),
        )
        return self._event_times.describe(stat)


class NewLogFiles(UnfinishedFile):
    """The log files that a commit or a log compaction writes to one file slice; mostly one."""

    def __init__(
        self,
        context: WriteContext,
        group: FileGroupId,
        name: LogFileName,
        replaced_instants: Sequence[str] = (),
    ) -> None:
        """Begin the first file. Arguments are as for ``NewLogFile``."""
        self._context, self._group, self._replaced = context, group, replaced_instants
        self._stats: list[WriteStat] = []
        self._file = NewLogFile(context, group, name, replaced_instants)

    def write(self, changes: pa.Table) -> None:
        """Append folded changes, as ``NewLogFile.write``."""
        for part in _pieces(changes):
            if self._file.is_full:
                self._roll_over()
            self._file.write(part)

    def abort(self) -> None:
        """Discard the last file, unless it was closed. A rollback deletes the files before it."""
        self._file.abort()

    def close(self) -> list[WriteStat]:
        """Make the last file visible, and return the write stat of each file.

        A stat lists this file and those before it.

        Raises:
            ContentMismatch: a file with other bytes exists at the path.
        """
        stats = [*self._stats, self._file.close()]
        names = [name for stat in stats for name in stat.log_files or ()]
        return [replace(stat, log_files=tuple(names[: n + 1])) for n, stat in enumerate(stats)]

    def _roll_over(self) -> None:
        full = self._file
        self._stats.append(full.close())
        name = replace(full.name, version=full.name.version + 1)
        self._file = NewLogFile(
            self._context, self._group, name, self._replaced, first_row=full.next_row
        )


def _pieces(changes: pa.Table) -> Iterator[pa.Table]:
    """Yield changes in parts after which the size of a log is checked."""
    count = max(1, -(-changes.nbytes // _PIECE_BYTES))
    rows = max(1, -(-changes.num_rows // count))
    for start in range(0, changes.num_rows, rows):
        yield changes.slice(start, rows)
