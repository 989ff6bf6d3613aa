"""``decode`` of events: what happened to the rows of a database."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field, field_validator

from lakemark.errors import InvalidConfig
from streamer.config.decode import DecodeConfig, WriterSchemaDecodeConfig, newest_in_registry
from streamer.config.section import Columns
from transforms.decode.avro import AvroDecoder
from transforms.decode.avro_framing import ConfluentFraming
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.envelopes.aws_dms import DmsEnvelope
from transforms.decode.envelopes.canal import CanalEnvelope
from transforms.decode.envelopes.connect import ConnectEnvelope
from transforms.decode.envelopes.debezium import AFTER, UNAVAILABLE_VALUE, DebeziumEnvelope
from transforms.decode.envelopes.debezium_positions import POSITION, Database
from transforms.decode.envelopes.documents import DocumentDecoder
from transforms.decode.envelopes.envelope import Envelope
from transforms.decode.envelopes.envelope_decoder import EnvelopeDecoder
from transforms.decode.envelopes.maxwell import MaxwellEnvelope
from transforms.decode.json import JsonDecoder
from transforms.decode.schema_differences import column_types
from transforms.decode.value_encoding import ValueEncoding

_NO_COLUMNS = pa.schema([])


class EnvelopeDecodeConfig(DecodeConfig):
    """Settings of values that contain rows, and perhaps what happened to them."""

    @property
    def event_columns(self) -> pa.Schema:
        """See ``DecodeConfig``."""
        return self.envelope().columns

    @property
    def infers_columns(self) -> bool:
        """See ``DecodeConfig``."""
        return False

    def decoder(self, columns: pa.Schema, key_columns: Sequence[str] = ()) -> ColumnDecoder:
        """See ``DecodeConfig``."""
        return EnvelopeDecoder(
            columns,
            *self.shared_arguments(),
            events=self.events(),
            envelope=self.envelope(key_columns),
            only=self.conditions(),
        )

    @abstractmethod
    def envelope(self, key_columns: Sequence[str] = ()) -> Envelope:
        """Return how an event contains rows."""

    def events(self) -> ColumnDecoder:
        """Return the decoder of the events, without columns."""
        return JsonDecoder(_NO_COLUMNS)

    def conditions(self) -> tuple[tuple[str, str], ...]:
        """Return the fields that an event must have, with their texts."""
        return ()


class ChangeEventConfig(EnvelopeDecodeConfig):
    """Settings of change events, whose other fields can become columns."""

    #: The fields of the events.
    envelope_class: ClassVar[type[Envelope]]

    event_fields: Columns = ()
    """The fields of the event that become columns, in addition to the columns of the row. The
    column of ``source.lsn`` is ``_source_lsn``."""

    only: Mapping[str, str] = Field(default_factory=dict)
    """Fields of the event and their texts: ``{database: shop, table: customers}``. Events with
    another text in one of these fields are counted as filtered. Without this setting, the table
    gets the rows of all events of the topic."""

    @field_validator("event_fields")
    @classmethod
    def _check_fields(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        _check_known(names, cls.envelope_class.field_types)
        return names

    @field_validator("only")
    @classmethod
    def _check_only(cls, texts: Mapping[str, str]) -> Mapping[str, str]:
        types = cls.envelope_class.field_types
        _check_known(texts, [name for name, kind in types.items() if pa.types.is_string(kind)])
        return texts

    def conditions(self) -> tuple[tuple[str, str], ...]:
        """See ``EnvelopeDecodeConfig``."""
        return tuple(self.only.items())


def _check_known(names: Iterable[str], known: Iterable[str]) -> None:
    """Check the names of fields of an event.

    Raises:
        ValueError: an event has no such field.
    """
    listed = list(known)
    for name in names:
        if name not in listed:
            message = f"{name!r} is not one of {', '.join(listed)}"
            raise ValueError(message)


class DebeziumDecodeConfig(ChangeEventConfig, WriterSchemaDecodeConfig):
    """Change events of Debezium. Each value is one event, which changes one row.

    The values are Avro if there is a ``schema_registry``, and otherwise JSON, with or without the
    schema that Kafka Connect adds. ``decode.schema`` declares the columns of the rows. These
    settings are added to those of ``decode``, and change some defaults, also of ``table``. See
    [Change events of Debezium](debezium.md).
    """

    envelope_class: ClassVar[type[Envelope]] = DebeziumEnvelope

    format: Literal["debezium"]
    """The format of the values."""

    database: Database
    """The kind of the database (``mysql`` also for MariaDB). It decides how events are ordered."""

    event_fields: Columns = ("op", "ts_ms")
    """The fields of the event that become columns, in addition to the columns of the row. The
    column of ``source.lsn`` is ``_source_lsn``."""

    decimal_handling: Literal["precise", "string", "double"] = "precise"
    """The setting ``decimal.handling.mode`` of the connector, for JSON. ``precise``: decimals are
    Base64, and must be declared with the scale that they have in the database."""

    typed_times: bool = True
    """For Avro: whether numbers that Debezium marks as dates or timestamps become dates and
    timestamps. If not, they are integers, as in tables that HoodieStreamer wrote."""

    @property
    def change_position(self) -> str | None:
        """See ``DecodeConfig``."""
        return POSITION

    @property
    def deletes_may_be_keys(self) -> bool:
        """See ``DecodeConfig``."""
        return self.database in ("postgres", "mongodb")

    @property
    def sent_for_unavailable(self) -> str | None:
        """See ``DecodeConfig``."""
        return UNAVAILABLE_VALUE if self.database == "postgres" else None

    @property
    def needs_keys(self) -> bool:
        """See ``DecodeConfig``."""
        return self.database == "mongodb"

    def decoder(self, columns: pa.Schema, key_columns: Sequence[str] = ()) -> ColumnDecoder:
        """See ``DecodeConfig``."""
        if self.database != "mongodb":
            return super().decoder(columns, key_columns)
        return DocumentDecoder(
            columns,
            *self.shared_arguments(),
            events=self.events(),
            envelope=self.envelope(key_columns),
            only=self.conditions(),
        )

    def newest_columns(self, topic: str) -> pa.Schema | None:
        """See ``DecodeConfig``."""
        if self.schema_registry is None or self.database == "mongodb":
            return None
        subject = self.subject_of(topic)
        newest = newest_in_registry(self.schema_registry, subject, typed_times=self.typed_times)
        event = pa.schema(list(newest.root.arrow))
        if AFTER not in event.names or not pa.types.is_struct(event.field(AFTER).type):
            message = f"{newest.name} is not that of Debezium's events: it has no record {AFTER!r}"
            raise InvalidConfig(message)
        return self.with_event_columns(column_types(event.field(AFTER).type))

    def envelope(self, key_columns: Sequence[str] = ()) -> DebeziumEnvelope:
        """See ``EnvelopeDecodeConfig``."""
        encoding = ValueEncoding()
        if self.schema_registry is None and self.database != "mongodb":
            encoding = ValueEncoding(self.decimal_handling == "precise", epoch_days=True)
        return DebeziumEnvelope(
            database=self.database,
            fields=self.event_fields,
            encoding=encoding,
            key_columns=tuple(key_columns),
        )

    def events(self) -> ColumnDecoder:
        """See ``EnvelopeDecodeConfig``."""
        if self.schema_registry is None:
            return super().events()
        registry = self.schema_registry.registry()
        framing = ConfluentFraming(registry, self.unknown_schema, typed_times=self.typed_times)
        limit_bytes = self.record_limit_bytes
        return AvroDecoder(_NO_COLUMNS, framing=framing, record_limit_bytes=limit_bytes)


class MaxwellDecodeConfig(ChangeEventConfig):
    """Change events of Maxwell. Each value is one event, which changes one row of MySQL.

    These settings are added to those of ``decode``. See [Other change events](change_events.md).
    """

    envelope_class: ClassVar[type[Envelope]] = MaxwellEnvelope

    format: Literal["maxwell"]
    """The format of the values."""

    def envelope(self, key_columns: Sequence[str] = ()) -> MaxwellEnvelope:
        """See ``EnvelopeDecodeConfig``."""
        return MaxwellEnvelope(fields=self.event_fields, key_columns=tuple(key_columns))


class CanalDecodeConfig(ChangeEventConfig):
    """Change events of Canal, as flat messages. Each value changes one or more rows of MySQL.

    These settings are added to those of ``decode``. See [Other change events](change_events.md).
    """

    envelope_class: ClassVar[type[Envelope]] = CanalEnvelope

    format: Literal["canal"]
    """The format of the values."""

    def envelope(self, key_columns: Sequence[str] = ()) -> CanalEnvelope:
        """See ``EnvelopeDecodeConfig``."""
        return CanalEnvelope(
            fields=self.event_fields,
            encoding=ValueEncoding(texts=True),
            key_columns=tuple(key_columns),
        )


class DmsDecodeConfig(ChangeEventConfig):
    """Change events of AWS Database Migration Service. Each value changes one row.

    These settings are added to those of ``decode``. See [Other change events](change_events.md).
    """

    envelope_class: ClassVar[type[Envelope]] = DmsEnvelope

    format: Literal["aws_dms"]
    """The format of the values."""

    @property
    def deletes_may_be_keys(self) -> bool:
        """See ``DecodeConfig``."""
        return True

    def envelope(self, key_columns: Sequence[str] = ()) -> DmsEnvelope:
        """See ``EnvelopeDecodeConfig``."""
        return DmsEnvelope(fields=self.event_fields, key_columns=tuple(key_columns))


class ConnectDecodeConfig(EnvelopeDecodeConfig):
    """JSON of Kafka Connect. Each value is one row, with its schema: ``{"schema":…, "payload":…}``.

    A value without a schema is the row itself. These settings are added to those of ``decode``. See
    [Rows of Kafka Connect](change_events.md#rows-of-kafka-connect).
    """

    format: Literal["connect"]
    """The format of the values."""

    decimal_format: Literal["base64", "numeric"] = "base64"
    """The setting ``decimal.format`` of the converter. ``base64``: decimals must be declared with
    the scale that they have in the schema of the values."""

    def envelope(self, key_columns: Sequence[str] = ()) -> ConnectEnvelope:
        """See ``EnvelopeDecodeConfig``."""
        is_base64 = self.decimal_format == "base64"
        return ConnectEnvelope(encoding=ValueEncoding(is_base64, epoch_days=True))
