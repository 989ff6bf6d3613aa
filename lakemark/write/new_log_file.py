"""Writes one log file of a file group: its marker, its changes and its write stat."""

from __future__ import annotations

from collections.abc import Sequence
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


class NewLogFile(UnfinishedFile):
    """A log file that a commit or a log compaction writes."""

    def __init__(
        self,
        context: WriteContext,
        group: FileGroupId,
        name: LogFileName,
        replaced_instants: Sequence[str] = (),
    ) -> None:
        """Create the marker, and begin the file.

        Args:
            context: the commit or log compaction.
            group: the file group.
            name: the name of the file.
            replaced_instants: the instants of the blocks that the file replaces.
        """
        self._context, self._group, self._name = context, group, name
        self._series = series_number(group)
        self._path = join(group.partition_path, str(name))
        self._rows = 0
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
        instant, first_row, file_id = self._context.instant, self._rows, self._group.file_id
        self._event_times.add_changes(changes)
        self._writer.append(set_meta_columns(changes, instant, self._series, file_id, first_row))
        self._rows += changes.num_rows

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
            prev_commit=self._name.instant,
            num_update_writes=status.num_writes,
            log_version=self._name.version,
            log_offset=0,
            log_files=(str(self._name),),
        )
        return self._event_times.describe(stat)
