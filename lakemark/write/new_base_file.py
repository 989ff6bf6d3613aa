"""Writes the base file of a file group: its name, its marker, its rows and its write stat."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from lakemark.merge.change_index import MergeCounts
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_names import BaseFileName, write_token
from lakemark.model.file_slice import FileGroupId, FileSlice, join
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.write.base_file_writer import BaseFileWriter
from lakemark.write.event_times import EventTimes
from lakemark.write.markers import create_marker
from lakemark.write.meta_column_values import clear_meta_columns, set_meta_columns
from lakemark.write.partitioner import series_number, task_number
from lakemark.write.unfinished_file import UnfinishedFile
from lakemark.write.write_context import WriteContext


class NewBaseFile(UnfinishedFile):
    """The base file of a file group that a commit or a table service writes."""

    def __init__(
        self, context: WriteContext, group: FileGroupId, replaces: FileSlice | None = None
    ) -> None:
        """Create the marker, and begin the file.

        Args:
            context: the commit or table service.
            group: the file group.
            replaces: the file slice that the new file replaces.
        """
        self._context, self._group, self._replaces = context, group, replaces
        self._series = series_number(group)
        token = write_token(task_number(group), context.attempt)
        self._name = str(BaseFileName(group.file_id, token, context.instant))
        self._path = join(group.partition_path, self._name)
        self._rows = 0
        # Stored rows without meta columns have no commit time, so they look like new rows.
        are_distinct = context.virtual_keys is None or replaces is None
        self._event_times = EventTimes(context.event_time_column if are_distinct else None)
        create_marker(context.storage, context.instant, self._path)
        self._stores_meta_columns = context.virtual_keys is None
        self._writer = BaseFileWriter(
            context.storage,
            self._path,
            context.schema,
            context.avro_schema,
            context.base_files,
            key_column=RECORD_KEY if self._stores_meta_columns else None,
            indexed=context.indexed,
        )

    def write(self, rows: pa.Table) -> None:
        """Append live rows. Rows without a commit time get the time of the context's instant."""
        instant, first_row = self._context.instant, self._rows
        self._event_times.add_rows(rows)
        stored = set_meta_columns(rows, instant, self._series, self._name, first_row)
        self._writer.write(stored if self._stores_meta_columns else clear_meta_columns(stored))
        self._rows += rows.num_rows

    def abort(self) -> None:
        """Discard the file, unless it was closed."""
        self._writer.abort()

    def close(self, counts: MergeCounts | None = None) -> WriteStat:
        """Make the file visible, and return its write stat.

        Args:
            counts: what the merge did; None if the file group is new and has all rows as inserts.

        Raises:
            ContentMismatch: a file with other bytes exists at the path.
        """
        status, replaces = self._writer.close(), self._replaces
        counts = counts or MergeCounts(inserted=self._rows)
        stat = replace(
            status.describe(self._group, self._path),
            prev_commit=replaces.base_instant if replaces else "null",
            prev_base_file=replaces.base_name if replaces else None,
            num_inserts=counts.inserted,
            num_update_writes=counts.updated,
            num_deletes=counts.deleted,
        )
        return self._event_times.describe(stat)
