"""``table``: the table, its keys and partitions, and which version of a row wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, field_validator, model_validator

from lakemark.config.merge_request import MergeRequest, find_payload_class, setting_text
from lakemark.config.merge_settings import PartialUpdateMode, payload_settings
from lakemark.config.partition_field import PartitionField, partition_fields
from lakemark.config.table_properties import MergeMode
from lakemark.config.table_spec import TABLE_NAME_PATTERN
from lakemark.errors import InvalidConfig
from lakemark.model.changes import DeleteMarker
from lakemark.storage.storage import StorageLocation
from lakemark.timeline.zone import parse_zone
from streamer.config import settings
from streamer.config.section import Columns, Location, Section, is_location
from streamer.config.settings import Settings

#: Indexes of which the metadata table has the file group of each record key.
RECORD_INDEXES = ("record_index", "partitioned_record_index")

IndexName: TypeAlias = Literal[
    "bucket", "consistent_hashing", "lookup", "record_index", "partitioned_record_index"
]

_MODES = {setting_text(mode): mode for mode in MergeMode}
_PARTIAL_UPDATES = {setting_text(mode): mode for mode in PartialUpdateMode}


def _check_partition_fields(texts: tuple[str, ...]) -> tuple[str, ...]:
    try:
        partition_fields(texts)
    except InvalidConfig as error:
        raise ValueError(str(error)) from None
    return texts


class DeleteWhen(Section):
    """Marks deletes: a row whose column ``field`` holds ``value`` deletes the row with its key.

    The setting is stored in the table.
    """

    field: Annotated[str, Field(min_length=1)]
    """The column that contains the mark."""

    value: Annotated[str, Field(min_length=1)]
    """The text that marks a delete."""


class TableConfig(Section):
    """A table in the Apache Hudi format. The first run creates it."""

    path: Location
    """The path or URL of the table: a local path (relative to the working directory, or with
    ``~``), or a URL (``s3://``, ``gs://``, ``az://``, ``file:///``)."""

    name: Annotated[str, Field(pattern=f"^{TABLE_NAME_PATTERN}$")] = ""
    """The name of the table in catalogs. Default: the last part of the path."""

    version: Literal[6, 8, 9] = 9
    """The format version of a new table: 9 (Hudi 1.1 and later), 8 (Hudi 1.0) or 6 (Hudi 0.14 and
    0.15). Most engines can read version 6. An existing table keeps its version; ``lakemark table
    upgrade`` and ``lakemark table downgrade`` change it."""

    type: Literal["merge_on_read", "copy_on_write"] = "merge_on_read"
    """``merge_on_read`` appends to log files, which queries and compaction merge, so commits are
    fast. ``copy_on_write`` rewrites base files with every commit, so queries are fast."""

    record_key: Columns
    """The columns that identify a row within its partition or, with ``partition_change: move``, in
    the whole table. With ``[]``, each record gets a new, automatic record key, which needs
    ``operation: insert``. See [Records without a key](merging.md#records-without-a-key)."""

    operation: Literal["upsert", "insert"] = "upsert"
    """``upsert`` replaces the row of a record's key. ``insert`` adds each record as a row, without
    looking for its key, which is faster. Each record is added once, also after a restart. Deletes
    go to the dead letters. ``insert`` needs a table without a bucket index and with keys that need
    not be unique; a new table gets a lookup index instead of buckets. See [Insert without
    merging](merging.md#insert-without-merging)."""

    duplicates: Literal["allow", "drop"] = "allow"
    """What ``operation: insert`` does with a record whose key is already stored in its partition.
    ``allow`` adds a second row. ``drop`` looks up the keys of each batch, skips such a record, and
    merges the records of a batch that have the same key."""

    partition_by: Annotated[Columns, AfterValidator(_check_partition_fields)] = ()
    """The columns that partition the table, or expressions of columns. Each distinct value becomes
    one folder, so use a column with few values, such as a date or a region. For a timestamp, use
    ``year(column)``, ``month(column)``, ``day(column)``, ``hour(column)`` or ``format(column,
    yyyyMMdd)``. There are also ``bucket(column, 16)`` and ``truncate(column, 3)``. The table stores
    the value of an expression in the column ``<column>_<function>``, or in the column ``dt`` if you
    write ``day(column) as dt``. See [Partition by expressions](partition_expressions.md). The same
    functions name the folders of an existing table of Apache Hudi that are formatted times. See
    [Folders that are formatted
    times](writing_foreign_tables.md#folders-that-are-formatted-times)."""

    partition_change: Literal["allow", "count", "reject", "move"] = "allow"
    """What happens to a row whose record key does not exist in the row's partition, but exists in
    another partition. ``allow`` writes the row, so that the key has a row in both partitions.
    ``count`` does the same, and also counts and reports such keys. ``reject`` sends the record to
    the dead letters. With ``count`` and ``reject``, each batch looks up its keys in the other
    partitions. ``move`` deletes the row in the other partition and writes the new one, in one
    commit, so that keys are unique in the whole table. It needs a table without a bucket index; a
    new table gets a lookup index instead of buckets. See [Keys and
    partitions](merging.md#keys-and-partitions)."""

    ordering: Columns = ()
    """The columns that order the versions of a row. In ``event_time`` mode, the version with the
    largest value wins. This also applies to deletes that have an ordering value. Tombstones have
    none by default, so they always delete the row (see ``decode.tombstone_ordering``). Deletes are
    not remembered for ever: a merge-on-read table forgets a delete at the next compaction, a
    copy-on-write table at once. After that, an older event that arrives late inserts the row again,
    as in Apache Hudi."""

    allow_text_ordering: bool = False
    """Whether text columns are accepted in ``ordering``. Text is compared character by character:
    ``10:00+05:00`` counts as newer than ``08:00Z``, and ``9`` as newer than ``10``. Use ``true``
    only if the order of the characters is the order of the events."""

    merge_mode: Literal["event_time", "commit_time", "custom"] = "commit_time"
    """Which version of a row wins: the one with the largest ``ordering`` (``event_time``), the one
    that arrived last (``commit_time``), or the result of ``merger`` (``custom``). Default: the mode
    of ``payload``. Without a ``payload``, the default is ``custom`` if there is a ``merger``,
    ``event_time`` if there is an ``ordering`` but no ``merger``, and otherwise
    ``commit_time``."""

    partial_update: Literal["none", "ignore_defaults", "fill_unavailable", "absent_fields"] = "none"
    """Which columns of the winning version take the value of the losing version. ``none``: no
    column. ``ignore_defaults``: columns that hold their default, which is null.
    ``fill_unavailable``: columns that hold ``unavailable_value``. ``absent_fields``: columns for
    which the winning record has no field. The first three choices are stored in the table;
    ``absent_fields`` applies to this writer only."""

    unavailable_value: Annotated[str, Field(min_length=1)] | None = None
    """The text that the source sends instead of a value that it omits. Only for ``partial_update:
    fill_unavailable``."""

    delete_when: DeleteWhen | None = None
    """Which rows are deletes. ``{field: op, value: d}``: a row whose column ``op`` holds the text
    ``d`` deletes the row with its key. The setting is stored in the table."""

    payload: Annotated[str, Field(min_length=1)] | None = None
    """A record payload of Apache Hudi, such as ``PartialUpdateAvroPayload``, or the name of its
    Java class. It sets ``merge_mode``, ``partial_update`` and related settings as Apache Hudi does
    for a new table with this payload."""

    merger: Annotated[str, Field(min_length=1)] | None = None
    """A merger that you wrote, as ``package.module:Class`` or ``FILE.py:Class``. FILE.py is a file
    on the local disk, relative to the folder of the pipeline file. Only for ``merge_mode:
    custom``."""

    index: IndexName | None = None
    """The index of a new table, which decides the file group of a record key. ``bucket``: by the
    hash of the key; each partition has a fixed number of buckets. ``consistent_hashing``: by the
    hash, too, but the pipeline splits buckets when they become large, and merges small ones
    (``bucket_resizing``), so that ``buckets`` need not fit the size of the table. ``lookup``: keys
    are looked up in the files, which have a target size. ``record_index``: the metadata table has
    the file group of each key, and a key is unique in the whole table, so a partitioned table needs
    ``partition_change: move``. ``partitioned_record_index``: the same for each partition. The
    driver writes every batch, except with ``bucket``. An existing table keeps its index, so the
    pipeline does not start if it has another one. Default: ``bucket`` for a new table, or
    ``lookup`` with ``partition_change: move`` or ``operation: insert``. See [Which
    index](indexes.md)."""

    buckets: Annotated[int, Field(ge=1, le=10_000)] = 4
    """The number of buckets, which are file groups, in each partition. It cannot change once the
    table exists; with ``index: consistent_hashing``, it is the number that a partition has at
    first. A table without a bucket index has no buckets; then do not set it."""

    log_format: Literal["parquet", "avro"] | None = None
    """The format of the data blocks in log files. Default: ``parquet``, or ``avro`` if a text
    column is in ``ordering``. The reason is a fault of Apache Hudi 1.2.0: when it reads Parquet
    blocks, it treats rows that are ordered by text as older than they are."""

    hive_style: bool = False
    """Whether partition folders are named ``column=value``."""

    url_encode: bool = False
    """Whether characters that have a meaning in paths (such as ``/``, ``:``, ``=``, ``#``, ``%``)
    are written as ``%XX`` in folder names. If this is false, a record whose partition value cannot
    be a folder name goes to the dead letters. See [Partition
    names](specification.md#partition-names)."""

    slash_separated_dates: bool = False
    """Whether the rows of the date 2026-01-02 are in the folder ``2026/01/02``. ``partition_by``
    must be one column of dates, or ``day(column)``. See [Slash-separated
    dates](partition_expressions.md#slash-separated-dates)."""

    meta_columns: bool = True
    """Whether rows store Hudi's five meta columns, such as record key and commit time. ``false``
    makes files smaller, but the table then has no incremental and no CDC queries. See [Tables
    without meta columns](writing_foreign_tables.md#tables-without-meta-columns)."""

    cdc: Literal["none", "op_key_only", "data_before", "data_before_after"] = "none"
    """What a new table logs for CDC queries: nothing (``none``), the keys of changed rows
    (``op_key_only``), also their old values (``data_before``), or their old and new values
    (``data_before_after``). The more is logged, the less a query has to read. A merge-on-read table
    logs nothing more, because its log files show the changes. An existing table keeps its
    setting."""

    event_time_column: str | None = None
    """A column of timestamps, or of whole seconds or milliseconds since 1970. The write statistics
    of each commit then contain the earliest and the latest event time of its rows
    (``minEventTime``, ``maxEventTime``). It need not be an ordering column. In a table
    without meta columns, a base file that replaces another one has no event times."""

    storage: Settings
    """Options of the storage client, such as ``aws_endpoint`` or ``aws_secret_access_key``."""

    timeline_timezone: str | None = None
    """The time zone of an existing table whose timeline is in local time (Apache Hudi's default,
    ``hoodie.table.timeline.timezone=LOCAL``). It is the zone of the JVMs that write the table, such
    as ``America/New_York``. Default: the zone of this machine, if the newest instants of the table
    are consistent with it; otherwise the pipeline stops before it writes. Tables that lakemark
    creates are in UTC."""

    metadata_table: bool = True
    """Whether the table has a metadata table. It contains file listings, so that readers do not
    list folders. It also contains statistics of the first 32 columns, so that readers skip files
    that cannot match a filter. ``false`` removes an existing metadata table."""

    statistics_columns: Columns | None = None
    """The columns of a new table with statistics, by which queries skip files. The fewer they are,
    the cheaper is a commit. The record key and the partition path always have statistics. An
    existing table keeps its columns, so the pipeline does not start if it has others; ``lakemark
    table index statistics`` changes them. Default: the first 32 columns that can have statistics.
    See [Columns with statistics](indexes.md#columns-with-statistics)."""

    drop_metadata_table: bool = False
    """Whether the metadata table of an existing table may be rebuilt without its indexes. lakemark
    does not maintain expression indexes of some functions, secondary indexes of columns with other
    values than texts and integers, and the record index of a table with a bucket index; this
    setting also removes ``bloom_filters``, ``record_index`` and all secondary and expression
    indexes."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        filled = dict(given)
        if isinstance(given.get("path"), str) and is_location(given["path"]):
            filled.setdefault("name", given["path"].rstrip("/").rpartition("/")[2])
        if isinstance(given.get("payload"), str):
            filled = {**_implied_by(given["payload"]), **filled}
        if given.get("merger"):
            filled.setdefault("merge_mode", "custom")
        if given.get("ordering"):
            filled.setdefault("merge_mode", "event_time")
        return filled

    @property
    def moves_rows(self) -> bool:
        """Whether a row moves if its partition changes, so that keys are unique in the table."""
        return self.partition_change == "move"

    @property
    def inserts(self) -> bool:
        """Whether records are added as rows, so that keys need not be unique."""
        return self.operation == "insert"

    @property
    def has_automatic_keys(self) -> bool:
        """Whether each record gets a new record key, because no columns identify a row."""
        return not self.record_key

    @property
    def needs_lookup_index(self) -> bool:
        """Whether the table must not have buckets, which decide the file group of a key."""
        return self.moves_rows or self.inserts or self.index in ("lookup", *RECORD_INDEXES)

    @property
    def has_record_index(self) -> bool:
        """Whether the table must have a record index, which a new table gets at first."""
        return self.index in RECORD_INDEXES

    @property
    def has_partitioned_index(self) -> bool:
        """Whether the keys of the record index are unique only within a partition."""
        return self.index == "partitioned_record_index"

    @property
    def decides_partition(self) -> bool:
        """Whether the record key alone decides the partition, so that no row changes it."""
        return set(self.partition_columns) <= set(self.record_key)

    @property
    def given_buckets(self) -> int | None:
        """The number of buckets if the pipeline file names it, else None."""
        return self.buckets if "buckets" in self.model_fields_set else None

    @property
    def partition_fields(self) -> tuple[PartitionField, ...]:
        """The fields of the partition path."""
        return partition_fields(self.partition_by)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns of the partition path."""
        return tuple(field.column for field in self.partition_fields)

    @property
    def drops_metadata_table(self) -> bool:
        """Whether the existing metadata table is removed, with all its indexes."""
        return self.drop_metadata_table or not self.metadata_table

    @field_validator("timeline_timezone")
    @classmethod
    def _check_zone(cls, name: str | None) -> str | None:
        try:
            if name is not None:
                parse_zone(name)
        except InvalidConfig as error:
            raise ValueError(str(error)) from None
        return name

    def merge_request(self) -> MergeRequest:
        """Return the merge settings that the table stores.

        ``absent_fields`` is not among them, because it applies to this writer only.
        """
        marker = self.delete_when
        return MergeRequest(
            ordering=self.ordering,
            merge_mode=_MODES[self.merge_mode],
            partial_update=_PARTIAL_UPDATES.get(self.partial_update),
            unavailable_value=self.unavailable_value,
            delete_marker=DeleteMarker(marker.field, marker.value) if marker else None,
            payload=self.payload,
            merger_class=self.merger,
        )

    def untrusted_ordering(self) -> tuple[str, ...]:
        """Return the columns of ``ordering`` that must not be text.

        Columns that a payload of Apache Hudi implies are trusted. For example, MySQL numbers its
        binlog files (``_event_bin_file``) with leading zeros, so the order of the text is right.
        """
        if self.allow_text_ordering:
            return ()
        payload_class = find_payload_class(self.payload) if self.payload else None
        trusted = payload_settings(payload_class).ordering_fields if payload_class else ()
        return tuple(column for column in self.ordering if column not in trusted)

    def location(self) -> StorageLocation:
        """Return the location of the table, with the secrets of the store.

        Raises:
            ConfigError: a secret cannot be found.
        """
        return StorageLocation(self.path, settings.resolve(self.storage, "table.storage"))


def _implied_by(payload: str) -> dict[str, object]:
    """Return the settings that a payload implies; no settings for an unknown payload."""
    payload_class = find_payload_class(payload)
    if payload_class is None:
        return {}
    meant = payload_settings(payload_class)
    marker = meant.delete_marker
    settings: dict[str, object] = {
        "merge_mode": setting_text(meant.mode),
        "ordering": list(meant.ordering_fields),
        "partial_update": setting_text(meant.partial_update),
        "unavailable_value": meant.unavailable_value,
        "delete_when": {"field": marker.field, "value": marker.text} if marker else None,
    }
    return {name: value for name, value in settings.items() if value}
