"""``source``: which topic is read, from where, and how much of it at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from checkpoints.book import IDENTITY_PATTERN
from streamer.config.masking import SecretGiven
from streamer.config.section import FromList, Section, each_once
from streamer.config.settings import Setting, Settings

#: What Kafka tells of a record beside its value, as it can become a column.
MetadataColumn = Literal["topic", "partition", "offset", "timestamp", "key"]

#: Prefix of the columns that metadata becomes, as Apache Hudi's streamer names them.
METADATA_PREFIX = "_hoodie_kafka_source_"

#: Properties that decide what this application decides itself, and what does so instead.
RESERVED_PROPERTIES = {
    "bootstrap.servers": "source.bootstrap",
    "isolation.level": "source.isolation",
    "auto.offset.reset": "source.starting",
    "key.deserializer": "decode",
    "value.deserializer": "decode",
    "enable.auto.commit": "the table, which keeps the offsets",
    "interceptor.classes": "nothing: the connector does not allow it",
}


#: A broker as Kafka's clients take it; the protocol before it, which they ignore, is accepted.
_BROKER = re.compile(r"([A-Za-z_]+://)?([\w.-]+|\[[\da-fA-F:.%\w]+\]):(\d{1,5})", re.ASCII)
_LARGEST_PORT = 65_535

#: As far as Kafka counts offsets and milliseconds.
_LONG = 2**63 - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _bootstrap(given: str) -> str:
    if "@" in given:
        message = (
            "expected host:port without user and password, which Kafka does not take here; give "
            "credentials in source.consumer (security.protocol, sasl.mechanism, sasl.jaas.config)"
        )
        raise SecretGiven(message)
    for broker in given.split(","):
        found = _BROKER.fullmatch(broker.strip())
        if found is None or not 1 <= int(found[3]) <= _LARGEST_PORT:
            message = (
                "expected host:port, or several with commas between them; a port is a number "
                f"from 1 to {_LARGEST_PORT}"
            )
            raise ValueError(message)
    return given


def _one_topic(given: object) -> object:
    if isinstance(given, str) and any(mark in given for mark in ",*|"):
        message = (
            "expected the name of one topic; lists and patterns are not accepted, because each "
            "topic needs a pipeline file and a table of its own"
        )
        raise ValueError(message)
    return given


def _starting(given: object) -> object:
    if given in ("earliest", "latest"):
        return given
    if isinstance(given, Mapping) and given.keys() == {"timestamp"}:
        return StartingTime(_epoch_ms(given["timestamp"]))
    if isinstance(given, Mapping) and given:
        offsets = {_natural(partition): _natural(offset) for partition, offset in given.items()}
        if None not in offsets and None not in offsets.values():
            return offsets
    message = (
        "expected earliest, latest, a mapping of partitions to offsets, such as {0: 1200}, or "
        "{timestamp: TIME}"
    )
    raise ValueError(message)


def _epoch_ms(given: object) -> int:
    """Milliseconds since 1970 that an ISO time with a zone, or the number itself, says."""
    number = _natural(given)
    if number is not None:
        return number
    try:
        moment = given if isinstance(given, datetime) else datetime.fromisoformat(str(given))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or moment < _EPOCH:
        message = (
            "timestamp: expected a time with its zone, such as 2026-01-31T06:00:00Z, or "
            "milliseconds since 1970"
        )
        raise ValueError(message)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _natural(given: object) -> int | None:
    """The number that YAML (or a quoted key) gives, from 0 to what Kafka can count; or None."""
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
            message = f"{name}: leave out the prefix, write {name.removeprefix('kafka.')}"
            raise ValueError(message)
    return consumer


@dataclass(frozen=True)
class StartingTime:
    """Start at the first record of each partition that is no older.

    Attributes:
        timestamp: milliseconds since 1970, UTC.
    """

    timestamp: int


class SourceConfig(Section):
    """A Kafka topic."""

    kind: Literal["kafka"] = "kafka"
    """What is read."""

    bootstrap: Annotated[str, Field(min_length=1), AfterValidator(_bootstrap)]
    """Brokers to ask first, ``host:port,host:port``. User and password are refused here; they
    belong in ``consumer`` (``sasl.jaas.config``)."""

    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$"), BeforeValidator(_one_topic)]
    """The topic; exactly one."""

    starting: Annotated[
        Literal["earliest", "latest"] | StartingTime | dict[int, int], BeforeValidator(_starting)
    ] = "earliest"
    """Where the very first run begins. Later runs go on where the table's newest commit says. A
    start at ``latest`` or at a time is committed before anything is read. With a mapping,
    partitions that it does not name begin at their earliest record. With ``{timestamp: TIME}`` (ISO
    with a zone, or milliseconds since 1970), each begins at its first record that is no older, or
    at its end where there is none."""

    checkpoint_id: Annotated[str, Field(pattern=f"^{IDENTITY_PATTERN}$")] = ""
    """Under which name the table keeps this pipeline's offsets. Several pipelines that write one
    table need one each. Left out: where Apache Hudi's streamer keeps them, too."""

    max_records_per_batch: Annotated[int, Field(ge=1, le=_LONG)] = 1_000_000
    """At most so many offsets in one commit."""

    on_offset_out_of_range: Literal["fail", "earliest", "latest"] = "fail"
    """What to do when a partition no longer holds the offset to go on at, because its records were
    deleted unread or the topic was created again: stop, or go on at that end of the partition (and
    of no other). What was passed over is told, and kept in the next commit."""

    on_missing_offsets: Literal["accept", "fail"] = "accept"
    """What to do when the topic has no record at some offsets of a batch although nothing was
    deleted by retention: transactions and compaction leave such gaps. ``accept`` counts them as
    ``skipped``. In a topic without either there are none, and ``fail`` stops the run before it
    publishes such a batch."""

    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """Whether records of aborted transactions are left out."""

    commit_group: Annotated[str, Field(min_length=1)] | None = None
    """A consumer group that is shown how far the table has read, for tools that watch its lag.
    Nothing ever starts from there."""

    consumer: Annotated[Settings, AfterValidator(_not_reserved)]
    """Any other property of Kafka's consumer (``security.protocol``, ``sasl.jaas.config``, …)."""

    metadata_columns: Annotated[
        tuple[MetadataColumn, ...], FromList, AfterValidator(each_once)
    ] = ()
    """Which of these become columns of the table, named ``_hoodie_kafka_source_<name>``."""
