"""A base file that was encoded before the instant that publishes it was known.

It lies in a folder on this machine's disk. Only its name, which each row contains in the meta
column ``_hoodie_file_name``, contains an instant. So the file is copied to the table with another
value in this column, if the table has meta columns. The copy has the bytes of a file that was
written for the instant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakemark.model.column_ranges import ColumnSize
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_names import BaseFileName, write_token
from lakemark.model.file_slice import join
from lakemark.model.meta_columns import FILE_NAME
from lakemark.storage.storage import StreamingFile
from lakemark.write.markers import create_marker
from lakemark.write.partitioner import task_number
from lakemark.write.prepared_file import PreparedFile
from lakemark.write.replaced_column import replace_column
from lakemark.write.write_context import WriteContext
from lakemark.write.write_status import close_file

#: The instant in the names of prepared files. It is later than that of any commit.
NO_INSTANT = "99991231235959999"


@dataclass(frozen=True, slots=True)
class PreparedBaseFile(PreparedFile):
    """A base file in a folder on this machine's disk."""

    def publish(self, context: WriteContext, file_id: str | None = None) -> WriteStat:
        """Copy the file to the table, under its final name, and return its write stat.

        Args:
            context: the context of the instant, equal to that of the preparation except for the
                instant and the attempt.
            file_id: the file id that the file gets; None for that of the preparation.

        Raises:
            ContentMismatch: a file with other bytes exists at the path.
        """
        group = self.group if file_id is None else replace(self.group, file_id=file_id)
        token = write_token(task_number(group), context.attempt)
        name = str(BaseFileName(group.file_id, token, context.instant))
        path = join(group.partition_path, name)
        create_marker(context.storage, context.instant, path)
        file = context.storage.create_streaming(path)
        try:
            size = self._copy(context, file, name)
            size_bytes = close_file(file)
        finally:
            file.abort()
        ranges = self.stat.column_ranges
        if ranges is not None and size is not None:
            ranges = replace(ranges, sizes={**ranges.sizes, FILE_NAME: size})
        return replace(
            self.stat,
            file_id=group.file_id,
            path=path,
            total_write_bytes=size_bytes,
            file_size_in_bytes=size_bytes,
            column_ranges=ranges,
        )

    def _copy(self, context: WriteContext, file: StreamingFile, name: str) -> ColumnSize | None:
        """Copy the content; return the size of the column with the names, if it was replaced."""
        if context.virtual_keys is not None:
            self.copy(file.write)
            return None
        with open(self.path, "rb") as source:
            field = context.schema.field(FILE_NAME)
            return replace_column(source, file.write, field, name, context.base_files)
