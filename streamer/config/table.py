"""``table``: where the rows go, what identifies them, and which version of a row wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from streamer.config import settings
from streamer.config.section import Columns, Place, Section, is_place
from streamer.config.settings import Settings
from table.storage.storage import StorageLocation


class TableConfig(Section):
    """A table in the Apache Hudi format; it is created by the first batch."""

    path: Place
    """Where: a local path (from the working directory) or a url (``s3://``, ``gs://``, ``az://``,
    ``file:///``)."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")] = ""
    """What catalogs call it. Left out: the last part of the path."""

    type: Literal["merge_on_read", "copy_on_write"] = "merge_on_read"
    """``merge_on_read`` writes a batch quickly and merges it when read or compacted;
    ``copy_on_write`` rewrites files at once."""

    record_key: Annotated[Columns, Field(min_length=1)]
    """Columns that identify a row within its partition."""

    partition_by: Columns = ()
    """Columns whose values name the folder of a row."""

    ordering: Columns = ()
    """Columns that order the versions of a row: the largest value wins, deletes too. A delete is
    remembered until it is compacted, or, copy-on-write, not at all: an older event that arrives
    after that makes the row anew, as in Apache Hudi."""

    merge_mode: Literal["event_time", "commit_time"] = "commit_time"
    """Which version of a row wins: the one with the largest ``ordering``, or the last to arrive.
    Left out: ``event_time`` where ``ordering`` is given."""

    operation: Literal["upsert", "insert"] = "upsert"
    """``insert`` does not look for earlier versions of a row."""

    buckets: Annotated[int, Field(ge=1, le=10_000)] = 4
    """File groups in each partition; fixed once the table exists."""

    log_format: Literal["parquet", "avro"] = "parquet"
    """Format of the log files' blocks."""

    hive_style: bool = False
    """Name folders ``column=value``."""

    url_encode: bool = False
    """Encode characters of folder names that a path may not have."""

    storage: Settings
    """What the store's client needs, such as ``aws_endpoint`` or ``aws_secret_access_key``."""

    drop_metadata_table: bool = False
    """Consent to remove the metadata table of an existing table, which is not kept up to date."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        filled = dict(given)
        if isinstance(given.get("path"), str) and is_place(given["path"]):
            filled.setdefault("name", given["path"].rstrip("/").rpartition("/")[2])
        if given.get("ordering"):
            filled.setdefault("merge_mode", "event_time")
        return filled

    def location(self) -> StorageLocation:
        """Where the table lies, with the store's secrets.

        Raises:
            ConfigError: a secret cannot be found.
        """
        return StorageLocation(self.path, settings.resolve(self.storage, "table.storage"))
