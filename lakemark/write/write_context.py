"""Values that are the same for all files of a commit."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from lakemark.config.merge_settings import MergeSettings
from lakemark.config.merger_name import is_file
from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.table_properties import LoggingMode, TableType
from lakemark.execution.source_file import SourceFile
from lakemark.merge.record_merger import RecordMerger
from lakemark.merge.table_merger import table_merger
from lakemark.metadata.secondary_columns import SecondaryColumn
from lakemark.model.format_version import FormatVersion
from lakemark.read.file_group_reader import FileGroupReader, all_visible
from lakemark.read.log_changes import IsVisible
from lakemark.read.virtual_keys import VirtualKeys
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.write.early_conflicts import Rival

#: The default of Apache Hudi (``hoodie.logfile.max.size``).
MAX_LOG_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class WriteContext:
    """Values that are the same for all files of a commit; small, and can be pickled for workers.

    Attributes:
        location: location of the table.
        instant: requested time of the commit.
        table_name: name of the table, from which file ids are derived.
        table_type: decides whether changes to an existing file group are appended to a log or
            rewrite the base file.
        schema: the table's columns, meta columns first.
        avro_schema_text: the same columns as an Avro schema in JSON.
        merge: merge settings of the table.
        log_format: format of data blocks, ``parquet`` or ``avro``.
        base_files: compression, sizes and dictionaries of base files and of Parquet log blocks.
        indexed: columns whose ranges of values the metadata table stores; empty without a metadata
            table.
        has_record_index: whether the metadata table has a record index, for which the keys that a
            file adds or removes are collected.
        secondary_columns: the columns with a secondary index in the metadata table, whose values
            before and after the commit are collected.
        version: version of the table.
        is_visible: decides whether log blocks of an instant are visible, as in ``FileGroupReader``.
        virtual_keys: creates the record keys of stored rows, if the table has no meta columns.
        cdc_mode: what is logged for CDC queries; None if the table does not support them.
        attempt: for a compaction, name of the attempt to execute it; "" for a commit.
        rivals: earlier commits with whose file groups a file of this commit must not conflict.
        max_log_bytes: the size at which a log receives no more blocks.
        event_time_column: the column with event times, whose range the write stats contain; None
            for write stats without it, as those of table services.
    """

    location: StorageLocation
    instant: str
    table_name: str
    table_type: TableType
    schema: pa.Schema
    avro_schema_text: str
    merge: MergeSettings
    log_format: str = "parquet"
    base_files: ParquetSettings = PARQUET_DEFAULTS
    indexed: tuple[str, ...] = ()
    has_record_index: bool = False
    secondary_columns: tuple[SecondaryColumn, ...] = ()
    version: FormatVersion = FormatVersion.V9
    is_visible: IsVisible = all_visible
    virtual_keys: VirtualKeys | None = None
    cdc_mode: LoggingMode | None = None
    attempt: str = ""
    rivals: tuple[Rival, ...] = ()
    event_time_column: str | None = None
    max_log_bytes: int = MAX_LOG_BYTES

    @property
    def logs_changes(self) -> bool:
        """Whether each rewritten base file needs a ``.cdc`` file."""
        return self.cdc_mode is not None and self.table_type is TableType.COPY_ON_WRITE

    @cached_property
    def storage(self) -> Storage:
        """The table's storage, opened once in each process."""
        return open_storage(self.location)

    @cached_property
    def merger(self) -> RecordMerger:
        """The record merger of the table, which readers use too."""
        return table_merger(self.merge, self.avro_schema)

    @cached_property
    def merger_file(self) -> SourceFile | None:
        """The file of a merger at ``FILE.py:Class``, pickled with this context; None otherwise."""
        path = self.merge.merger_class
        return SourceFile.read(path.rpartition(":")[0]) if path and is_file(path) else None

    @property
    def reader(self) -> FileGroupReader:
        """A reader of file slices, to rewrite them and to resolve partial rows."""
        return FileGroupReader(
            self.storage,
            self.schema,
            self.merger,
            self.is_visible,
            delete_marker=self.merge.delete_marker,
            virtual_keys=self.virtual_keys,
        )

    @cached_property
    def avro_schema(self) -> dict[str, Any]:
        """The Avro schema that is written to files."""
        parsed: dict[str, Any] = json.loads(self.avro_schema_text)
        return parsed

    def use_storage(self, storage: Storage) -> WriteContext:
        """Make this context use a storage that is already open, and return the context."""
        self.__dict__["storage"] = storage
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without opened objects, because another process must open its own."""
        opened = ("storage", "merger", "avro_schema")
        state = {name: value for name, value in self.__dict__.items() if name not in opened}
        file, path = self.merger_file, self.merge.merger_class
        if file is None or path is None:
            return state
        # In a process with another working directory, a relative path would name another file.
        absolute = f"{file.path}:{path.rpartition(':')[2]}"
        merge = replace(self.merge, merger_class=absolute)
        return {**state, "merge": merge, "merger_file": file}
