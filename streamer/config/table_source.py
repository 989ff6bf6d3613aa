"""``source`` of a table: the table, what is read of its commits, and the size of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from lakemark.errors import InvalidConfig
from lakemark.read.query_instant import parse_query_instant
from lakemark.storage import canonical_url
from lakemark.storage.storage import StorageLocation
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.zone import parse_zone
from streamer.config import settings
from streamer.config.any_source import AnySource
from streamer.config.errors import Problem
from streamer.config.section import Location, Section
from streamer.config.settings import Settings
from streamer.config.table import TableConfig

#: Where the first run starts, instead of a time.
_WORDS = ("snapshot", "earliest", "latest")


def _as_text(given: object) -> object:
    """Return the text of an instant or a date, which YAML reads as another type."""
    is_time = isinstance(given, int | date) and not isinstance(given, bool)
    return str(given) if is_time else given


class StoredTableConfig(Section):
    """A table to read, and the size of a batch."""

    path: Location
    """The path or URL of the table that is read, in the forms of ``table.path``. Apache Hudi or
    lakemark writes it."""

    storage: Settings
    """Options of the storage client, as in ``table.storage``."""

    max_bytes_per_batch: Annotated[int, Field(ge=1 << 10, le=512 << 20)] = 128 << 20
    """About how many bytes of rows one commit may have in memory. A larger commit, and the rows of
    the first run, are divided among several commits."""

    merger: Annotated[str, Field(min_length=1)] | None = None
    """The merger of the table that is read, in the forms of ``table.merger``, if that table has
    merge mode ``custom``."""

    timeline_timezone: str | None = None
    """The time zone of the timeline of the table that is read, as ``table.timeline_timezone``."""

    @field_validator("timeline_timezone")
    @classmethod
    def _check_zone(cls, name: str | None) -> str | None:
        try:
            if name is not None:
                parse_zone(name)
        except InvalidConfig as error:
            raise ValueError(str(error)) from None
        return name


class TableSourceConfig(StoredTableConfig, AnySource):
    """The commits of another table in the Apache Hudi format.

    The first run reads the rows of the table, and later runs read what its commits changed. See
    [Sources](sources.md#tables).
    """

    kind: Literal["table"]
    """The kind of source."""

    query: Literal["incremental", "cdc"]
    """What is read of each commit. ``cdc``: each insert, update and delete, so that rows which the
    commit deletes are deleted; it needs a table with ``hoodie.table.cdc.enabled``. ``incremental``:
    the rows that the commit wrote; deletes are not read, so deleted rows stay."""

    start_at: Annotated[str, BeforeValidator(_as_text), Field(min_length=1)] = "snapshot"
    """Where the first run starts. ``snapshot``: with the rows of the table as of its newest commit.
    ``earliest``: with the changes of the first commit, which must still exist. ``latest``: after
    the newest commit. Or after a time: an instant such as ``20260501120000000``, a date, or ISO
    8601 with a zone."""

    max_commits_per_batch: Annotated[int, Field(ge=1, le=100_000)] = 100
    """The largest number of commits whose changes one commit of this pipeline contains."""

    poll_interval_s: Annotated[float, Field(gt=0, le=86_400)] = 10.0
    """Seconds until the table is read again for new commits, if there is nothing to read."""

    @property
    def origin(self) -> str:
        """See ``AnySource``."""
        return self.path

    @field_validator("start_at")
    @classmethod
    def _check_start(cls, given: str) -> str:
        if given in _WORDS:
            return given
        try:
            parse_query_instant(given, UTC_CLOCK)
        except InvalidConfig as error:
            message = f"expected {', '.join(_WORDS)} or a time: {error}"
            raise ValueError(message) from None
        return given

    def location(self) -> StorageLocation:
        """Return the location of the table that is read, with the secrets of the store.

        Raises:
            ConfigError: a secret cannot be found.
        """
        return StorageLocation(self.path, settings.resolve(self.storage, "source.storage"))

    def unresolved(self) -> list[Problem]:
        """See ``AnySource``."""
        return settings.unresolved(self.storage, "source.storage")


def table_source_problems(source: AnySource, table: TableConfig, kind: str) -> Iterator[Problem]:
    """Yield a problem for each setting that does not fit a source that is a table.

    Args:
        source: the source, of any kind.
        table: the table that is written.
        kind: ``decode.format``.
    """
    if not isinstance(source, TableSourceConfig):
        return
    if kind != "columns":
        yield Problem("decode.format", f"{kind} does not fit source.kind table; remove it")
    if canonical_url(source.path).rstrip("/") == canonical_url(table.path).rstrip("/"):
        yield Problem("source.path", "is also table.path; a table cannot be its own source")
    if table.inserts:
        text = "must be upsert, because the commits of a table change rows"
        yield Problem("table.operation", text)
