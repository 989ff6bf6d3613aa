"""The table that a pipeline reads: its commits, and their rows as records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from checkpoints.table_position import TablePosition
from lakemark.config.merge_settings import MergeSettings, merge_settings
from lakemark.config.table_properties import MergeMode
from lakemark.errors import InvalidConfig
from lakemark.merge.custom.load import load_merger
from lakemark.model.file_slice import FileSlice
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import IS_DELETED, RECORD_KEY, is_reserved
from lakemark.operations.change_feed import ChangeFeed, FeedType
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.read.scan import Scan
from lakemark.storage import canonical_url
from streamer.config.table_source import TableSourceConfig
from streamer.sources.tables.errors import UnreadChangesLost, lost_changes_reported

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: The operation of a change that deletes its row.
_DELETE = "d"


@dataclass(frozen=True, slots=True)
class Rows:
    """Some consecutive rows of a commit or of a file slice.

    Attributes:
        keys: the text by which each row is recognized.
        values: the rows as structs. In a CDC query, a field marks those that delete their row.
    """

    keys: pa.Array
    values: pa.StructArray

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, first: int, count: int | None = None) -> Rows:
        """Return some of the rows."""
        return Rows(self.keys.slice(first, count), self.values.slice(first, count))

    def digest(self, before: int) -> int:
        """Return the digest of some rows, from that of the rows before them."""
        if not len(self):
            return before
        whole = pa.ListArray.from_arrays(pa.array([0, len(self)], pa.int32()), self.keys)
        text = pc.binary_join(whole, "\n")[0].as_py()
        return crc32(f"{text}\n".encode(), before)


class Upstream:
    """The open table that a pipeline reads, as of the last ``refresh`` of its feed.

    Attributes:
        url: the canonical URL.
        feed: its commits.

    Args:
        config: the settings of the source.

    Raises:
        TableNotFound: there is no table.
        InvalidConfig: the table keeps no change data, but a CDC query needs it; or a setting is
            not suitable.
        HudiError: the table cannot be read.
    """

    def __init__(self, config: TableSourceConfig) -> None:
        self.url = canonical_url(config.path).rstrip("/")
        self._table = open_upstream(config)
        self._type = FeedType(config.query)
        self.feed = ChangeFeed(self._table, self._type)
        self.feed.refresh()

    @property
    def columns(self) -> pa.Schema | None:
        """The columns of the records; None if the table has no columns yet."""
        schema = self._table.known_schema
        return None if schema is None else pa.schema([schema.field(n) for n in self._names(schema)])

    @property
    def has_commits(self) -> bool:
        """Whether the table has a completed commit."""
        return self.feed.find_start("latest").is_commit

    def time_us(self, time: str) -> int:
        """Return an instant time in microseconds since 1970."""
        moment = self._table.store.clock.parse(time)
        return (moment - _EPOCH) // timedelta(microseconds=1)

    def commits_after(self, position: TablePosition) -> list[Instant]:
        """Return the commits that are unread, at least in part; see ``ChangeFeed.commits_after``.

        Raises:
            UnreadChangesLost, ReadChangesUndone: instead of the errors of the feed.
        """
        with lost_changes_reported(self.url):
            return self.feed.commits_after(position.after, position.begun_commit)

    def rows_of(self, commit: Instant) -> Iterator[Rows]:
        """Yield the changes of a commit, in the same order each time.

        Raises:
            UnreadChangesLost: files of the commit were removed.
        """
        with lost_changes_reported(self.url):
            batches = self.feed.changes(commit, threads=1)
        for batch in batches:
            yield Rows(_texts([batch.column("key")]), self._records(batch))

    def plan_snapshot(self, as_of: str) -> Scan:
        """Plan to read a state that ``ChangeFeed.find_snapshot`` has returned.

        Raises:
            UnreadChangesLost: files of the state were removed.
        """
        try:
            return self.feed.scan_snapshot(as_of)
        except InvalidConfig as error:
            reason = f"the rows as of {as_of}, which were not read completely, are gone: {error}"
            raise UnreadChangesLost(self.url, reason, None) from error

    def rows_in(self, scan: Scan, file_slice: FileSlice) -> Iterator[Rows]:
        """Yield the rows of a slice of a snapshot."""
        names = self._names(scan.schema)
        key_names = [RECORD_KEY] if RECORD_KEY in scan.schema.names else self._key_fields(names)
        for batch in scan.with_slices([file_slice]).batches(1):
            keys = _texts([batch.column(name) for name in key_names])
            yield Rows(keys, batch.select(names).to_struct_array())

    def _key_fields(self, names: Sequence[str]) -> Sequence[str]:
        """Return the fields of the record key that are columns of the rows; or else all columns."""
        found = [one for one in self._table.properties.record_key_fields if one in names]
        return found or names

    def _records(self, changes: pa.RecordBatch) -> pa.StructArray:
        after = changes.column("after")
        if self._type is FeedType.INCREMENTAL:
            return self._select(after)
        is_delete = pc.equal(changes.column("op"), _DELETE)
        images = self._select(pc.if_else(is_delete, changes.column("before"), after))
        mark = pa.field(IS_DELETED, pa.bool_())
        return pa.StructArray.from_arrays(
            [*images.flatten(), is_delete], fields=[*images.type, mark]
        )

    def _select(self, rows: pa.StructArray) -> pa.StructArray:
        fields = [rows.type.field(name) for name in self._names(pa.schema(list(rows.type)))]
        arrays = [pc.struct_field(rows, one.name) for one in fields]
        return pa.StructArray.from_arrays(arrays, fields=fields)

    def _names(self, columns: pa.Schema) -> list[str]:
        """Return the columns of the records.

        They are the columns of the table without those that store partition expressions, and
        without reserved ones, such as the meta columns.
        """
        computed = {one.stored_column for one in self._table.properties.partition_expressions}
        return [name for name in columns.names if name not in computed and not is_reserved(name)]


def open_upstream(config: TableSourceConfig) -> OpenTable:
    """Open the table that a pipeline reads.

    Raises:
        ConfigError: a secret of ``source.storage`` cannot be found.
        HudiError: there is no table, or it cannot be read.
    """
    mergers = [] if config.merger is None else [load_merger(config.merger)]
    return open_table(config.location(), mergers=mergers, timezone=config.timeline_timezone)


def ordering_of(config: TableSourceConfig) -> tuple[str, ...]:
    """Return the columns that order the versions of a row in the table that a pipeline reads.

    Raises:
        HudiError: as for ``open_upstream``.
    """
    settings: MergeSettings = merge_settings(open_upstream(config).properties)
    return settings.ordering_fields if settings.mode is MergeMode.EVENT_TIME else ()


def _texts(columns: Sequence[pa.Array]) -> pa.Array:
    """Return the texts of several columns as one column, without nulls."""
    texts = [pc.fill_null(_text(column), "") for column in columns]
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, ",")


def _text(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        return pa.array([str(one) for one in column.to_pylist()], pa.string())
