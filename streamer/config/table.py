"""``table``: where the rows go, what identifies them, and which version of a row wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from streamer.config import settings
from streamer.config.section import Columns, Place, Section, is_place
from streamer.config.settings import Settings
from table.config.merge_request import MergeRequest, payload_class_of, word
from table.config.merge_settings import PartialUpdateMode, payload_settings
from table.config.table_properties import MergeMode
from table.errors import InvalidConfig
from table.model.changes import DeleteMarker
from table.storage.storage import StorageLocation
from table.timeline.zone import parse_zone

_MODES = {word(mode): mode for mode in MergeMode}
_PARTIAL_UPDATES = {word(mode): mode for mode in PartialUpdateMode}


class DeleteWhen(Section):
    """A row that deletes instead of writing: one of its columns says so."""

    field: Annotated[str, Field(min_length=1)]
    """The column."""

    value: Annotated[str, Field(min_length=1)]
    """The text in it that marks a delete."""


class TableConfig(Section):
    """A table in the Apache Hudi format; it is created by the first batch."""

    path: Place
    """Where: a local path (from the working directory, or ``~``) or a url (``s3://``, ``gs://``, ``az://``,
    ``file:///``)."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")] = ""
    """What catalogs call it. Left out: the last part of the path."""

    version: Literal[6, 8, 9] = 9
    """Version of a new table: 9 (Hudi 1.1 and later), 8 (Hudi 1.0) or 6 (Hudi 0.14 and 0.15), which
    most engines read. A table that is there is continued in the version it has; ``lakemark table
    upgrade`` and ``downgrade`` change it."""

    type: Literal["merge_on_read", "copy_on_write"] = "merge_on_read"
    """``merge_on_read`` writes a batch quickly and merges it when read or compacted;
    ``copy_on_write`` rewrites files at once."""

    record_key: Annotated[Columns, Field(min_length=1)]
    """Columns that identify a row within its partition."""

    partition_by: Columns = ()
    """Columns whose values name the folder of a row: one folder for each distinct value. Use a
    column with few values, such as a date or a region. A new table cannot be partitioned by a
    timestamp, because nearly every row would get a folder of its own."""

    partition_change: Literal["allow", "count", "refuse"] = "allow"
    """What happens to a row whose record key exists in another partition: it is written, and the
    key then has a row in each (``allow``); the same, and it is counted and reported (``count``);
    it goes to the dead letters (``refuse``). The last two look the keys of each batch up in the
    other partitions."""

    ordering: Columns = ()
    """Columns that order the versions of a row: the largest value wins, deletes too. A delete is
    remembered until it is compacted, or, copy-on-write, not at all: an older event that arrives
    after that makes the row anew, as in Apache Hudi."""

    allow_text_ordering: bool = False
    """Whether ``ordering`` may name columns of text. Texts are compared character by character, so
    ``10:00+05:00`` counts as newer than ``08:00Z``, and ``9`` as newer than ``10``. Set it only if
    the order of the characters is the order of the events."""

    merge_mode: Literal["event_time", "commit_time", "custom"] = "commit_time"
    """Which version of a row wins: the one with the largest ``ordering``, the last to arrive, or
    what ``merger`` makes of the two. Left out: what ``payload`` means, ``custom`` where ``merger``
    is given, ``event_time`` where ``ordering`` is given."""

    partial_update: Literal["none", "ignore_defaults", "fill_unavailable", "absent_fields"] = "none"
    """What the winner leaves to the other version of its row: nothing; columns that hold their
    default, which is null; columns that hold ``unavailable_value``; or the columns that its record
    has no field for. The first three belong to the table, the last one to this writer."""

    unavailable_value: Annotated[str, Field(min_length=1)] | None = None
    """The text that stands for a value the source did not send, for ``fill_unavailable``."""

    delete_when: DeleteWhen | None = None
    """``{field: op, value: d}``: a row whose column ``op`` holds the text ``d`` deletes its record.
    Belongs to the table."""

    payload: Annotated[str, Field(min_length=1)] | None = None
    """A record payload of Apache Hudi, such as ``PartialUpdateAvroPayload``, or its Java class. It
    says ``merge_mode``, ``partial_update`` and the like as Apache Hudi does when it makes a table
    with it."""

    merger: Annotated[str, Field(min_length=1)] | None = None
    """A merger of your own, ``package.module:Class``, for ``merge_mode: custom``."""

    buckets: Annotated[int, Field(ge=1, le=10_000)] = 4
    """File groups in each partition; fixed once the table exists."""

    log_format: Literal["parquet", "avro"] | None = None
    """Format of the log files' blocks. Left out: ``parquet``; ``avro`` where a text column is among
    ``ordering``, whose rows Apache Hudi 1.2.0 takes for older ones when it reads Parquet blocks."""

    hive_style: bool = False
    """Name folders ``column=value``."""

    url_encode: bool = False
    """Write characters with a meaning in paths (such as ``/``, ``:``, ``=``, ``#``, ``%``) as
    ``%XX`` in the names of folders. Without it, a value that cannot name a folder makes its record
    a dead letter: [Partition names](specification.md#partition-names)."""

    storage: Settings
    """What the store's client needs, such as ``aws_endpoint`` or ``aws_secret_access_key``."""

    timeline_timezone: str | None = None
    """Time zone of an existing table whose timeline is in local time (Apache Hudi's default,
    ``hoodie.table.timeline.timezone=LOCAL``), such as ``America/New_York``: the zone of the JVMs
    that write it. Left out: this machine's, if the table's newest instants show that it is the
    same; otherwise the pipeline stops before it writes. Tables that lakemark creates are in UTC."""

    metadata_table: bool = True
    """Keep a metadata table, so that readers neither list folders nor open files that cannot hold
    what they look for: listings, and statistics of the first 32 columns. ``false`` removes it."""

    drop_metadata_table: bool = False
    """Consent to make the metadata table of an existing table anew, without the indexes in it that
    are not kept up to date (``record_index``, ``bloom_filters``, secondary and expression ones)."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: object) -> object:
        if not isinstance(given, Mapping):
            return given
        filled = dict(given)
        if isinstance(given.get("path"), str) and is_place(given["path"]):
            filled.setdefault("name", given["path"].rstrip("/").rpartition("/")[2])
        if isinstance(given.get("payload"), str):
            filled = {**_meaning_of(given["payload"]), **filled}
        if given.get("merger"):
            filled.setdefault("merge_mode", "custom")
        if given.get("ordering"):
            filled.setdefault("merge_mode", "event_time")
        return filled

    @property
    def drops_metadata_table(self) -> bool:
        """Whether the metadata table that is there goes, whatever indexes it has."""
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
        """What these settings ask of the table; how a writer's own rows are cut is not part."""
        marker = self.delete_when
        return MergeRequest(
            self.ordering,
            _MODES[self.merge_mode],
            _PARTIAL_UPDATES.get(self.partial_update),
            self.unavailable_value,
            DeleteMarker(marker.field, marker.value) if marker else None,
            self.payload,
            self.merger,
        )

    def untrusted_ordering(self) -> tuple[str, ...]:
        """Columns of ``ordering`` that must not be text.

        The columns that a payload of Apache Hudi itself names are trusted: MySQL numbers its
        binlog files (``_event_bin_file``) with leading zeros.
        """
        if self.allow_text_ordering:
            return ()
        payload_class = payload_class_of(self.payload) if self.payload else None
        trusted = payload_settings(payload_class).ordering_fields if payload_class else ()
        return tuple(column for column in self.ordering if column not in trusted)

    def location(self) -> StorageLocation:
        """Where the table lies, with the store's secrets.

        Raises:
            ConfigError: a secret cannot be found.
        """
        return StorageLocation(self.path, settings.resolve(self.storage, "table.storage"))


def _meaning_of(payload: str) -> dict[str, object]:
    """The settings that a payload stands for; none for an unknown one."""
    payload_class = payload_class_of(payload)
    if payload_class is None:
        return {}
    meant = payload_settings(payload_class)
    marker = meant.delete_marker
    settings: dict[str, object] = {
        "merge_mode": word(meant.mode),
        "ordering": list(meant.ordering_fields),
        "partial_update": word(meant.partial_update),
        "unavailable_value": meant.unavailable_value,
        "delete_when": {"field": marker.field, "value": marker.text} if marker else None,
    }
    return {name: value for name, value in settings.items() if value}
