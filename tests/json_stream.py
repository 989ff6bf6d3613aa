"""Writes JSON records to a table through the real sink, without Spark and Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.config.table_properties import MergeMode, TableType
from lakemark.config.table_spec import TableSpec
from lakemark.errors import TableNotFound
from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import BucketIndex
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.coordination import Coordination
from lakemark.operations.create import create_table
from lakemark.operations.duplicate_keys import Duplicates
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.schema.evolution import unite_schemas
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation
from lakemark.transaction.multi_writer import MultiWriter
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY
from sinks.batch import BatchResult, KafkaBatch
from sinks.hudi.exchange import OpenWrite, PortionResult, Prepare, ReadBatch
from sinks.hudi.partition_rule import PartitionChange
from sinks.hudi.prepare import PrepareChunk
from sinks.hudi.replay import LetterReplay
from sinks.hudi.sink import HudiSink
from sinks.letter_layout import INDEX as DEAD_LETTER_INDEX
from sinks.letter_layout import LetterLayout, dead_letter_spec
from sinks.reject_limit import RejectLimit
from transforms.decode.json import JsonDecoder
from transforms.decode.schema_policy import SchemaPolicy
from transforms.raw_records import HEADERS, HEADERS_TYPE, HeaderColumn
from transforms.record_converter import RecordConverter
from transforms.schema_text import parse_schema
from transforms.tombstone_keys import TombstoneKey

TOPIC = "orders"
INDEX = BucketIndex(2, ("id",))

#: The time of each record in its topic.
RECORDED_AT = datetime(2026, 1, 1, tzinfo=UTC)

COLUMNS = {"id": "string", "ts": "bigint", "n": "int"}

Record = Mapping[str, object] | bytes


@dataclass(frozen=True)
class Tombstone:
    """A record without a value.

    Attributes:
        key: the Kafka key.
    """

    key: bytes


@dataclass(frozen=True)
class InThisProcess:
    """An exchange whose batch has an Arrow table in place of a DataFrame.

    Attributes:
        attempts: the number of records of each run.
    """

    attempts: list[int] = field(default_factory=list)

    def run(
        self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
    ) -> list[PortionResult]:
        """Run like ``DriverExchange``, on an Arrow table."""
        records = cast(pa.Table, batch.records)
        self.attempts.append(records.num_rows)
        return ReadBatch([records], LocalRunner(1)).run(batch, prepare, open_write)


def _opened(
    location: StorageLocation, spec: TableSpec, multi_writer: MultiWriter | None
) -> OpenTable:
    coordination = Coordination(multi_writer=multi_writer)
    try:
        return open_table(location, coordination=coordination)
    except TableNotFound:
        return create_table(location, spec, coordination)


@dataclass
class JsonStream:
    """A producer and a pipeline; each ``write`` is one batch of one partition.

    Attributes:
        location: location of the table.
        policy: the schema policy of the pipeline.
        columns: the columns that the pipeline declares.
        rescue_column: the rescue column of the pipeline; None for none.
        table_type: type of the table.
        log_format: format of the data blocks of its logs.
        version: format version of a new table.
        topic: topic of the producer.
        identity: identity of the pipeline among the streamers of the table.
        multi_writer: the settings for several writers; None if the pipeline is the only writer.
        metadata_table: whether the table and its dead-letter table have a metadata table.
        partition_by: columns that form the partition path.
        record_key: columns of the record key; none for automatic keys.
        ordering: ordering columns. If there are none, the row that arrives last wins.
        partition_change: what happens to rows whose key exists in another partition.
        index: the bucket index of the table; None if keys are looked up.
        duplicates: what an insert does with stored keys; None for upserts.
        limit: the limit of rejected records.
        ignores_tombstones: whether records without a value are ignored.
        tombstone_key: the encoding of the Kafka keys of tombstones; None rejects tombstones.
        header_columns: the headers that the pipeline stores in columns.
        opened: opens or creates each of the two tables.
        exchange: carries the records of a batch to the writer.
    """

    location: StorageLocation
    policy: SchemaPolicy = field(default_factory=SchemaPolicy)
    columns: Mapping[str, str] = field(default_factory=lambda: COLUMNS)
    rescue_column: str | None = None
    table_type: TableType = TableType.MERGE_ON_READ
    log_format: str = "parquet"
    version: FormatVersion = FormatVersion.V9
    topic: str = TOPIC
    identity: str = DEFAULT_IDENTITY
    multi_writer: MultiWriter | None = None
    metadata_table: bool = True
    partition_by: tuple[str, ...] = ()
    record_key: tuple[str, ...] = ("id",)
    ordering: tuple[str, ...] = ("ts",)
    partition_change: PartitionChange = PartitionChange.ALLOW
    index: BucketIndex | None = INDEX
    duplicates: Duplicates | None = None
    limit: RejectLimit = field(default_factory=lambda: RejectLimit(1.0))
    ignores_tombstones: bool = False
    tombstone_key: TombstoneKey | None = None
    header_columns: tuple[HeaderColumn, ...] = ()
    opened: Callable[[StorageLocation, TableSpec, MultiWriter | None], OpenTable] = _opened
    exchange: InThisProcess = field(default_factory=InThisProcess)

    def __post_init__(self) -> None:
        mode = MergeMode.EVENT_TIME if self.ordering else MergeMode.COMMIT_TIME
        spec = TableSpec(
            name="orders",
            record_key=self.record_key,
            table_type=self.table_type,
            partition_by=self.partition_by,
            ordering=self.ordering,
            merge_mode=mode,
            metadata_table=self.metadata_table,
            version=self.version,
        )
        decoder = JsonDecoder(parse_schema(self.columns), self.rescue_column, policy=self.policy)
        keys = KeyGenerator(KeyGeneratorConfig(self.record_key, self.partition_by))
        ignoring, moves = self.ignores_tombstones, self.partition_change is PartitionChange.MOVE
        converter = RecordConverter(
            decoder,
            keys,
            self.ordering,
            "raw" if moves else self.tombstone_key,
            topic=self.topic,
            ignores_tombstones=ignoring,
            logs_deletes=self.table_type is TableType.MERGE_ON_READ,
            deletes_by_key=moves,
            inserts_only=self.duplicates is not None,
            header_columns=self.header_columns,
        )
        table = self.opened(self.location, spec, self.multi_writer)
        if table.schema is not None:
            own = without_meta_columns(table.schema)
            converter = converter.for_table(unite_schemas(own, converter.table_schema, ""))
        settings = WriterSettings(
            self.index, self.log_format, metadata_table=self.metadata_table, global_keys=moves
        )
        self.rows = TableWriter(table, converter.table_schema, settings)
        place = StorageLocation(f"{self.location.url}_rejects", self.location.options)
        spec = replace(dead_letter_spec("rejects"), metadata_table=self.metadata_table)
        sharing = self.multi_writer and replace(self.multi_writer, non_blocking=False)
        letters = self.opened(place, spec, sharing)
        settings = WriterSettings(DEAD_LETTER_INDEX, metadata_table=self.metadata_table)
        self.rejects = TableWriter(letters, LetterLayout.of(letters.properties).columns, settings)
        self.prepare = PrepareChunk(
            converter=converter, row_index=self.index, reject_index=DEAD_LETTER_INDEX
        )
        self.sink = HudiSink(
            self.rows,
            self.rejects,
            self.prepare,
            self.limit,
            self.identity,
            self.partition_change,
            self.duplicates,
        )
        self.sink.recover()
        known = self.sink.checkpoint()
        self.offset = known.offsets_by_partition[0] if known else 0

    def write(
        self,
        records: Iterable[Record | Tombstone | None],
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> BatchResult:
        """Write one batch, whose records all have the same headers."""
        batch = kafka_batch(self.topic, self.offset, records)
        if headers:
            raw = cast(pa.Table, batch.records)
            listed = [{"key": name, "value": value} for name, value in headers]
            column = pa.array([listed] * raw.num_rows, HEADERS_TYPE)
            with_headers = cast(Any, raw.append_column(HEADERS, column))
            batch = replace(batch, records=with_headers)
        result = self.sink.write(batch, self.exchange)
        self.offset = batch.end.offsets[0]
        return result

    def replay(self, *, overwrites_newer: bool = False) -> LetterReplay:
        """Return a replay of the dead letters with this pipeline."""
        return LetterReplay(
            self.rows,
            self.rejects,
            self.prepare,
            topic=self.topic,
            identity=self.identity,
            partition_change=self.partition_change,
            duplicates=self.duplicates,
            overwrites_newer=overwrites_newer,
            runner=LocalRunner(1),
        )

    def compact(self) -> None:
        """Compact the file groups that have logs."""
        self.rows.compact_if_due(CompactionPolicy(after_commits=1), LocalRunner(1))

    def read(self) -> dict[str, dict[str, object]]:
        """Read the rows by key with a new reader, without Hudi's columns and without nulls."""
        rows = open_table(self.location).scan().to_reader().read_all().to_pylist()
        return {str(row["id"]): present(row) for row in rows}

    def schema(self) -> dict[str, str]:
        """Return the columns and types of the table, as a new reader finds them."""
        schema = open_table(self.location).schema
        return {} if schema is None else {f.name: str(f.type) for f in without_meta_columns(schema)}

    def reasons(self) -> dict[int, str]:
        """Return the reason of each dead letter by its offset."""
        return {offset: row["reason"] for offset, row in self.letters().items()}

    def letters(self) -> dict[int, dict[str, Any]]:
        """Return each dead letter by its offset."""
        rows = open_table(self.rejects.table.location).scan().to_reader().read_all().to_pylist()
        return {row["offset"]: row for row in rows}


def kafka_batch(topic: str, start: int, records: Iterable[Record | Tombstone | None]) -> KafkaBatch:
    """Create a batch of one partition for ``InThisProcess``."""
    listed = list(records)
    keys = [record.key if isinstance(record, Tombstone) else None for record in listed]
    values = [_value(record) for record in listed]
    end = start + len(values)
    table = pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array([0] * len(values), pa.int32()),
            "offset": pa.array(range(start, end), pa.int64()),
            "timestamp": pa.array([RECORDED_AT] * len(values), pa.timestamp("us", "UTC")),
        }
    )
    began, ended = (KafkaCheckpoint(topic, {0: offset}) for offset in (start, end))
    return KafkaBatch(records=cast(DataFrame, table), start=began, end=ended)


def _value(record: Record | Tombstone | None) -> bytes | None:
    if isinstance(record, Mapping):
        return json.dumps(record).encode()
    return None if isinstance(record, Tombstone) else record


def present(row: Mapping[str, object]) -> dict[str, object]:
    """Return a row without Hudi's columns and without null fields, also nested ones."""
    kept = {}
    for name, value in row.items():
        if value is not None and not name.startswith("_hoodie_"):
            kept[name] = _present(value)
    return kept


def _present(value: object) -> object:
    if isinstance(value, dict):
        return present(value)
    return [_present(element) for element in value] if isinstance(value, list) else value
