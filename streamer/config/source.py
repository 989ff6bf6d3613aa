"""``source``: which topic is read, from where, and how much of it at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from streamer.config.section import FromList, Section
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


def _bootstrap(given: str) -> str:
    for broker in given.split(","):
        found = _BROKER.fullmatch(broker.strip())
        if found is None or not 1 <= int(found[3]) <= _LARGEST_PORT:
            message = "expected host:port, or several with commas between them"
            raise ValueError(message)
    return given


def _starting(given: object) -> object:
    if given in ("earliest", "latest"):
        return given
    if isinstance(given, Mapping) and given:
        offsets = {_natural(partition): _natural(offset) for partition, offset in given.items()}
        if None not in offsets and None not in offsets.values():
            return offsets
    message = "expected earliest, latest or a mapping of partitions to offsets, such as {0: 1200}"
    raise ValueError(message)


def _natural(given: object) -> int | None:
    """The number from 0 on that YAML (or a quoted key) gives, or None."""
    if isinstance(given, bool) or not isinstance(given, int | str):
        return None
    text = str(given)
    return int(text) if text.isascii() and text.isdigit() else None


def _not_reserved(consumer: Mapping[str, Setting]) -> Mapping[str, Setting]:
    for name in consumer:
        if name in RESERVED_PROPERTIES:
            message = f"{name} is set by {RESERVED_PROPERTIES[name]}"
            raise ValueError(message)
        if name.startswith("kafka."):
            message = f"{name}: leave out the prefix, write {name.removeprefix('kafka.')}"
            raise ValueError(message)
    return consumer


class SourceConfig(Section):
    """A Kafka topic."""

    kind: Literal["kafka"] = "kafka"
    """What is read."""

    bootstrap: Annotated[str, Field(min_length=1), AfterValidator(_bootstrap)]
    """Brokers to ask first, ``host:port,host:port``."""

    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
    """The topic; exactly one."""

    starting: Annotated[
        Literal["earliest", "latest"] | dict[int, int], BeforeValidator(_starting)
    ] = "earliest"
    """Where the very first run begins. Later runs go on where the table's newest commit says.
    With a mapping, partitions that it does not name begin at their earliest record."""

    max_records_per_batch: Annotated[int, Field(ge=1)] = 1_000_000
    """At most so many offsets in one commit."""

    fail_on_data_loss: bool = True
    """Stop when records that were not read are gone from the topic. Otherwise the partition they
    belonged to (and no other) goes on at its earliest record, and the run says so."""

    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """Whether records of aborted transactions are left out."""

    consumer: Annotated[Settings, AfterValidator(_not_reserved)]
    """Any other property of Kafka's consumer (``security.protocol``, ``sasl.jaas.config``, …)."""

    metadata_columns: Annotated[tuple[MetadataColumn, ...], FromList] = ()
    """Which of these become columns of the table, named ``_hoodie_kafka_source_<name>``."""
