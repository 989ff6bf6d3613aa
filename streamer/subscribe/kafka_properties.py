"""Settings of librdkafka for a producer, from a properties file of Kafka's Java client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakemark.config.properties_text import parse_properties
from lakemark.errors import InvalidConfig
from streamer.sources.kafka_login import CA_FILE
from streamer.sources.librdkafka_settings import NotTranslatable, client_settings

#: Properties of a Java producer with the same meaning in librdkafka, under these names.
_OF_PRODUCER = {
    "batch.size": "batch.size",
    "compression.type": "compression.type",
    "linger.ms": "linger.ms",
    "max.request.size": "message.max.bytes",
    "transaction.timeout.ms": "transaction.timeout.ms",
}
_SECURITY = ("security.protocol", "sasl.", "ssl.", CA_FILE)


def read_kafka_properties(path: Path | None) -> dict[str, str]:
    """Read a file such as Kafka's own tools accept as ``--producer.config``.

    Raises:
        InvalidConfig: the file cannot be read, or has a property that is not supported.
    """
    if path is None:
        return {}
    try:
        properties = parse_properties(path.read_bytes())
    except (OSError, ValueError) as error:
        message = f"--kafka-properties {path}: {error}"
        raise InvalidConfig(message) from None
    for name in properties:
        if name not in _OF_PRODUCER and not name.startswith(_SECURITY):
            supported = ", ".join(sorted(_OF_PRODUCER))
            message = (
                f"--kafka-properties {path}: {name} is not supported; remove it (supported: "
                f"{supported}, and the properties of security)"
            )
            raise InvalidConfig(message)
    return properties


def connection_settings(bootstrap: str, properties: dict[str, str]) -> dict[str, Any]:
    """Return the settings with which every client of the target connects.

    Raises:
        InvalidConfig: librdkafka does not support a property.
    """
    try:
        return client_settings(bootstrap, properties)
    except NotTranslatable as error:
        message = f"--kafka-properties: librdkafka does not support {error}"
        raise InvalidConfig(message) from None


def producer_settings(properties: dict[str, str]) -> dict[str, str]:
    """Return the settings of the producer that the file contains."""
    return {_OF_PRODUCER[name]: v for name, v in properties.items() if name in _OF_PRODUCER}
