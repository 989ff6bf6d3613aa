"""The values that all files of a commit share."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from lakemark.config.merge_settings import MergeSettings
from lakemark.config.merger_name import is_file
from lakemark.config.table_properties import TableType
from lakemark.merge.custom.merger_file import MergerFile
from lakemark.merge.record_merger import RecordMerger
from lakemark.merge.table_merger import table_merger
from lakemark.model.format_version import FormatVersion
from lakemark.read.file_group_reader import FileGroupReader, all_visible
from lakemark.read.log_changes import IsVisible
from lakemark.storage import Storage, StorageLocation, open_storage


@dataclass(frozen=True, kw_only=True)
class WriteContext:
    """Values that all files of a commit share; small, and can be pickled for workers.

    Attributes:
        location: location of the table.
        instant: requested time of the commit.
        table_name: for the name of the written Avro schema.
        table_type: whether changes to an existing group go to a log or rewrite its base file.
        schema: the table's columns, meta columns first.
        avro_schema_text: the same as Avro JSON, with the meta columns.
        merge: merge settings of the table.
        log_format: format of data blocks, ``parquet`` or ``avro``.
        indexed: columns whose ranges the metadata table keeps; empty without a metadata table.
        version: the table's.
        is_visible: whether log blocks of an instant are visible, as for ``FileGroupReader``.
        cdc_enabled: whether the table keeps changes for CDC queries.
        attempt: the attempt at the instant, if the instant is a planned service.
    """

    location: StorageLocation
    instant: str
    table_name: str
    table_type: TableType
    schema: pa.Schema
    avro_schema_text: str
    merge: MergeSettings
    log_format: str = "parquet"
    indexed: tuple[str, ...] = ()
    version: FormatVersion = FormatVersion.V9
    is_visible: IsVisible = all_visible
    cdc_enabled: bool = False
    attempt: str = ""

    @cached_property
    def storage(self) -> Storage:
        """The table's storage, opened once in each process."""
        return open_storage(self.location)

    @cached_property
    def merger(self) -> RecordMerger:
        """The table's record merger, the same as of its readers."""
        return table_merger(self.merge, self.avro_schema)

    @cached_property
    def merger_file(self) -> MergerFile | None:
        """The file of the user's merger, if it is in a file; workers need not have the file."""
        path = self.merge.merger_class
        return MergerFile.read(path.rpartition(":")[0]) if path and is_file(path) else None

    @property
    def reader(self) -> FileGroupReader:
        """Reads file slices of the table, in order to rewrite them."""
        marker = self.merge.delete_marker
        return FileGroupReader(
            self.storage, self.schema, self.merger, self.is_visible, delete_marker=marker
        )

    @cached_property
    def avro_schema(self) -> dict[str, Any]:
        """The written schema."""
        parsed: dict[str, Any] = json.loads(self.avro_schema_text)
        return parsed

    def use_storage(self, storage: Storage) -> WriteContext:
        """Use a storage that this process has already opened; returns this context."""
        self.__dict__["storage"] = storage
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Without objects that this process opened; the other process opens its own."""
        opened = ("storage", "merger", "avro_schema")
        state = {name: value for name, value in self.__dict__.items() if name not in opened}
        file, path = self.merger_file, self.merge.merger_class
        if file is None or path is None:
            return state
        # A relative path would name another file in a process with another working directory.
        absolute = f"{file.path}:{path.rpartition(':')[2]}"
        merge = replace(self.merge, merger_class=absolute)
        return {**state, "merge": merge, "merger_file": file}
