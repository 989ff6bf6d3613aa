"""The settings of the hook ``kafka``. This module needs no library of Kafka."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lakemark.errors import InvalidConfig
from streamer.hooks.messages import FORMATS
from streamer.hooks.settings import HookSettings
from streamer.sources.broker_addresses import check_addresses
from streamer.sources.kafka_login import CA_FILE, check_login
from streamer.sources.librdkafka_settings import NotTranslatable, client_settings

_KIND = "kafka"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

#: Properties of a Java producer with the same meaning in librdkafka, under these names.
_OF_PRODUCER = {"compression.type": "compression.type", "max.request.size": "message.max.bytes"}
_SECURITY = ("security.protocol", "sasl.", "ssl.", CA_FILE)

_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")

#: The sizes of messages in bytes that librdkafka accepts for ``max.request.size``.
_MESSAGE_BYTES = range(1_000, 1_000_000_001)


def check_kafka(settings: HookSettings) -> dict[str, Any]:
    """Check the settings of the hook ``kafka``; return how librdkafka connects.

    Raises:
        InvalidConfig: a setting is missing, unknown or wrong.
    """
    settings.check_names(_KIND, required=("bootstrap_servers", "topic"), optional=("format",))
    settings.refuse(_KIND, "headers")
    settings.one_of(_KIND, "format", tuple(FORMATS), "lakemark")
    if not _TOPIC.fullmatch(settings.options["topic"]):
        message = f"option topic of hook {_KIND}: expected the name of one topic"
        raise InvalidConfig(message)
    bootstrap, properties = settings.options["bootstrap_servers"], settings.properties
    if "@" in bootstrap:
        message = (
            f"option bootstrap_servers of hook {_KIND} contains a user or a password; use "
            "properties (sasl.jaas.config)"
        )
        raise InvalidConfig(message)
    try:
        check_addresses(bootstrap)
    except ValueError as error:
        message = f"option bootstrap_servers of hook {_KIND} is {bootstrap!r}; {error}"
        raise InvalidConfig(message) from None
    for name in properties:
        if name not in _OF_PRODUCER and not name.startswith(_SECURITY):
            supported = ", ".join(_OF_PRODUCER)
            message = (
                f"property {name} of hook {_KIND} is not supported; remove it (supported: "
                f"{supported}, and the properties of security)"
            )
            raise InvalidConfig(message)
    _check_producer(properties)
    try:
        check_login(properties)
    except ValueError as error:
        message = f"properties of hook {_KIND}: {error}"
        raise InvalidConfig(message) from None
    try:
        connection = client_settings(bootstrap, properties)
    except NotTranslatable as error:
        message = f"properties of hook {_KIND}: librdkafka does not support {error}"
        raise InvalidConfig(message) from None
    chosen = {_OF_PRODUCER[name]: one for name, one in properties.items() if name in _OF_PRODUCER}
    return {**connection, **chosen}


def _check_producer(properties: Mapping[str, str]) -> None:
    compression, size = properties.get("compression.type"), properties.get("max.request.size")
    if compression is not None and compression not in _COMPRESSIONS:
        message = (
            f"property compression.type of hook {_KIND} is {compression!r}; use one of "
            f"{', '.join(_COMPRESSIONS)}"
        )
        raise InvalidConfig(message)
    if size is not None and not (size.isdecimal() and int(size) in _MESSAGE_BYTES):
        message = (
            f"property max.request.size of hook {_KIND} is {size!r}; expected a number of bytes "
            f"from {_MESSAGE_BYTES[0]} to {_MESSAGE_BYTES[-1]}"
        )
        raise InvalidConfig(message)
