"""``source`` of Kafka: the topic, the offsets to start at, and the size of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from lakemark.model.meta_columns import is_reserved
from streamer.config import settings
from streamer.config.any_source import AnySource, MetadataColumn
from streamer.config.errors import Problem
from streamer.config.masking import SecretGiven
from streamer.config.section import FromList, each_once
from streamer.config.settings import Setting, Settings
from streamer.sources.broker_addresses import check_addresses
from streamer.sources.kafka_login import check_login
from transforms.raw_records import HeaderColumn

#: Consumer properties that lakemark sets, and the setting to use instead.
RESERVED_PROPERTIES = {
    "bootstrap.servers": "source.bootstrap_servers",
    "isolation.level": "source.isolation_level",
    "auto.offset.reset": "source.starting_offsets",
    "key.deserializer": "decode",
    "value.deserializer": "decode",
    "enable.auto.commit": "the table, which records the offsets",
    "interceptor.classes": "nothing: the connector does not allow it",
}


#: The largest offset, and the largest time in milliseconds, that Kafka accepts.
_LONG = 2**63 - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _bootstrap(given: str) -> str:
    if "@" in given:
        message = (
            "expected host:port without user and password, which Kafka does not accept here; put "
            "credentials in source.consumer (security.protocol, sasl.mechanism, sasl.jaas.config)"
        )
        raise SecretGiven(message)
    check_addresses(given)
    return given


def _header_names(given: Mapping[str, str]) -> Mapping[str, str]:
    for name, header in given.items():
        if not name or not header:
            message = "expected the name of a column and that of a header; neither may be empty"
            raise ValueError(message)
        if is_reserved(name):
            message = f"{name!r}: names that begin with _hoodie_ are reserved; use another name"
            raise ValueError(message)
    return given


def _one_text(given: object) -> object:
    if isinstance(given, list):
        message = "expected one text with all brokers, as host:port,host:port, and not a list"
        raise (SecretGiven if "@" in str(given) else ValueError)(message)
    return given


def _one_topic(given: object) -> object:
    if isinstance(given, str) and any(mark in given for mark in ",*|"):
        message = (
            "expected the name of one topic; topics accepts a list, and topic_pattern accepts a "
            "pattern"
        )
        raise ValueError(message)
    return given


def _starting(given: object) -> object:
    if given in ("earliest", "latest"):
        return given
    if isinstance(given, Mapping) and given.keys() == {"timestamp"}:
        return StartingTime(_timestamp(given["timestamp"]))
    if isinstance(given, Mapping) and given:
        offsets = {_natural(partition): _natural(offset) for partition, offset in given.items()}
        if None not in offsets and None not in offsets.values():
            return offsets
    message = (
        "expected earliest, latest, a mapping of partitions to offsets, such as {0: 1200}, or "
        "{timestamp: TIME}"
    )
    raise ValueError(message)


def _ending(given: object) -> object:
    if given is None:
        return None
    if isinstance(given, Mapping) and given:
        offsets = {_natural(partition): _natural(offset) for partition, offset in given.items()}
        if None not in offsets and None not in offsets.values():
            return offsets
    message = "expected a mapping of partitions to offsets, such as {0: 1200, 1: 900}"
    raise ValueError(message)


def epoch_ms(given: object) -> int:
    """Convert an ISO time with a zone, or a number of milliseconds, to milliseconds since 1970.

    Raises:
        ValueError: it is neither.
    """
    number = _natural(given)
    if number is not None:
        return number
    try:
        moment = given if isinstance(given, datetime) else datetime.fromisoformat(str(given))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or moment < _EPOCH:
        message = (
            "expected a time with its zone, such as 2026-01-31T06:00:00Z, or milliseconds since "
            "1970"
        )
        raise ValueError(message)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _timestamp(given: object) -> int:
    try:
        return epoch_ms(given)
    except ValueError as error:
        message = f"timestamp: {error}"
        raise ValueError(message) from None


def _natural(given: object) -> int | None:
    """Convert a YAML value to a number from 0 to Kafka's maximum; None if it is no such number."""
    if isinstance(given, bool) or not isinstance(given, int | str):
        return None
    text = str(given)
    is_natural = text.isascii() and text.isdigit() and len(text) < len(str(_LONG)) + 1
    return int(text) if is_natural and int(text) <= _LONG else None


def _not_reserved(consumer: Mapping[str, Setting]) -> Mapping[str, Setting]:
    for name in consumer:
        if name in RESERVED_PROPERTIES:
            message = f"{name} is set by {RESERVED_PROPERTIES[name]}"
            raise ValueError(message)
        if name.startswith("kafka."):
            message = f"{name}: omit the prefix; write {name.removeprefix('kafka.')}"
            raise ValueError(message)
    check_login({n: one.text if one.origin == "value" else None for n, one in consumer.items()})
    return consumer


@dataclass(frozen=True)
class StartingTime:
    """A start at the first record of each partition with this timestamp or a later one.

    Attributes:
        timestamp: milliseconds since 1970, UTC.
    """

    timestamp: int


def _allow_other_topics(schema: dict[str, Any]) -> None:
    """Let the JSON schema accept files of several topics, which have no ``topic``."""
    schema["required"] = [name for name in schema["required"] if name != "topic"]


class KafkaSourceConfig(AnySource):
    """The Kafka topic to read."""

    model_config = ConfigDict(json_schema_extra=_allow_other_topics)

    kind: Literal["kafka"] = "kafka"
    """The kind of source."""

    bootstrap_servers: Annotated[
        str, Field(min_length=1), BeforeValidator(_one_text), AfterValidator(_bootstrap)
    ]
    """The Kafka brokers to connect to first: ``host:port,host:port``. A user or password is refused
    here, because credentials belong in ``consumer`` (``sasl.jaas.config``)."""

    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$"), BeforeValidator(_one_topic)]
    """The name of the topic. In `name`, `table.path`, `table.name`, `dead_letters.path`,
    `checkpoint_id`, `commit_group`, `decode.subject` and the options of `concurrency.lock`,
    `{topic}` stands for this name. Omit it to read [several topics](many_tables.md#several-topics)
    with ``topics`` or ``topic_pattern``."""

    topics: Annotated[tuple[str, ...], FromList] = ()
    """Several topics. Each of them has a pipeline and a table of its own, so `table.path` must
    contain `{topic}`. See [Several topics](many_tables.md#several-topics)."""

    topic_pattern: str | None = None
    """A regular expression that matches the whole names of several topics. New topics are found
    while the process runs."""

    topic_interval_s: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """Seconds between two searches for new topics that match ``topic_pattern``."""

    starting_offsets: Annotated[
        Literal["earliest", "latest"] | StartingTime | dict[int, int], BeforeValidator(_starting)
    ] = "earliest"
    """Where the first run starts to read. Every later run continues at the pipeline's newest
    checkpoint in the table. ``latest`` and ``{timestamp: TIME}`` are resolved to offsets, which
    are committed before any record is read. A mapping such as ``{0: 1200}`` gives the first offset
    of each partition; partitions that it does not name start at their earliest record. With
    ``{timestamp: TIME}`` (ISO 8601 with a zone, or milliseconds since 1970), each partition starts
    at its first record with this timestamp or a later one. If there is no such record, the
    partition starts at its end."""

    ending_offsets: Annotated[dict[int, int] | None, BeforeValidator(_ending)] = None
    """The offsets up to which runs read, such as ``{0: 1200, 1: 900}``: the first offset of each
    partition that is not read. Partitions that are not named are not read. Only for ``run.mode:
    once``, which then ends exactly there. If the topic does not have these offsets yet, or the
    table has read past them, the run is refused. ``lakemark shadow`` uses this setting to compare
    two tables ([Continue a table of HoodieStreamer](from_hoodiestreamer.md))."""

    max_records_per_batch: Annotated[int, Field(ge=1, le=_LONG)] = 1_000_000
    """The largest number of offsets that one commit may cover. With many partitions, Spark may
    slightly exceed it, so that no partition is starved. With a ``route``, the default is 2000000,
    because each batch makes a commit to each of its tables."""

    on_offset_out_of_range: Literal["fail", "earliest", "latest"] = "fail"
    """What happens if a partition no longer has the offset to continue at, because retention
    deleted unread records or the topic was created again. ``fail`` stops the run. ``earliest``
    continues at the beginning of the partition, ``latest`` at its end; other partitions are not
    affected. The skipped offsets are reported, and recorded in the next commit."""

    on_missing_offsets: Literal["accept", "fail"] = "accept"
    """What happens if some offsets of a batch have no record, although retention deleted nothing.
    Transactions and log compaction leave such gaps. ``accept`` counts them as ``skipped``. ``fail``
    stops the run before the batch is published. Use ``fail`` for a topic without transactions and
    log compaction, which normally has no gaps."""

    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """``read_committed`` skips the records of aborted transactions; ``read_uncommitted`` also reads
    them."""

    commit_group: Annotated[str, Field(min_length=1)] | None = None
    """A consumer group to which the committed offsets of the table are reported, so that tools can
    monitor the lag of the pipeline. No run starts from the offsets of this group."""

    consumer: Annotated[Settings, AfterValidator(_not_reserved)]
    """Other properties of the Kafka consumer (``security.protocol``, ``sasl.jaas.config``, …). See
    [Secured clusters](sources.md#secured-clusters) for logins with tokens."""

    metadata_columns: Annotated[
        tuple[MetadataColumn, ...], FromList, AfterValidator(each_once)
    ] = ()
    """Kafka metadata to store in the table, each in a column named
    ``_hoodie_kafka_source_<name>``."""

    header_columns: Annotated[Mapping[str, str], AfterValidator(_header_names)] = Field(
        default_factory=dict
    )
    """Headers of the Kafka records to store in the table as text: the name of each column, and the
    header that fills it, such as ``{trace_id: trace-id}``. If a record has several headers of this
    name, the last one counts. Without the header, the column is null. A record whose header is not
    UTF-8 goes to the dead letters."""

    @property
    def origin(self) -> str:
        """See ``AnySource``."""
        return self.topic

    @property
    def stored_metadata(self) -> tuple[MetadataColumn, ...]:
        """See ``AnySource``."""
        return self.metadata_columns

    @property
    def headers(self) -> tuple[HeaderColumn, ...]:
        """See ``AnySource``."""
        return tuple(HeaderColumn(name, header) for name, header in self.header_columns.items())

    def unresolved(self) -> list[Problem]:
        """See ``AnySource``."""
        return settings.unresolved(self.consumer, "source.consumer")


def ending_problems(source: AnySource, mode: str) -> Iterator[Problem]:
    """Yield a problem if a run that should not end has offsets at which it ends.

    Args:
        source: the source, of any kind.
        mode: ``run.mode``.
    """
    if isinstance(source, KafkaSourceConfig) and source.ending_offsets and mode != "once":
        text = f"needs run.mode: once, but this is {mode}; start the run with --once"
        yield Problem("source.ending_offsets", text)
