"""The properties of a source's consumer, whose secrets may be replaced while the process runs."""

from __future__ import annotations

import os
from collections.abc import Mapping

from streamer.config import settings
from streamer.config.errors import ConfigError, Problem
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.sources.kafka_login import CA_FILE, java_properties

#: Properties whose value is the path of a file that Kafka's client reads when it is created.
_FILES = ("ssl.keystore.location", "ssl.truststore.location", CA_FILE)


def read_consumer(source: KafkaSourceConfig) -> dict[str, str]:
    """Return the properties of a source's consumer for Kafka's Java client, with their secrets.

    Raises:
        ConfigError: a secret cannot be found, or is not usable.
    """
    given = settings.resolve(source.consumer, "source.consumer")
    return _for_java(source, given)


class ConsumerProperties:
    """The properties of a source's consumer as they were last read.

    Attributes:
        current: the properties for Kafka's Java client.

    Args:
        source: the source.

    Raises:
        ConfigError: a secret cannot be found, or is not usable.
    """

    def __init__(self, source: KafkaSourceConfig) -> None:
        self._source = source
        self.current: Mapping[str, str] = {}
        self._version: object = None
        self.refresh()

    @property
    def has_changed(self) -> bool:
        """Whether a secret, or a file of keys or certificates, has changed since ``refresh``.

        False while a secret cannot be read, because a program is replacing its file.
        """
        try:
            given = settings.resolve(self._source.consumer, "source.consumer")
        except (ConfigError, OSError, LookupError, UnicodeDecodeError):
            return False
        return _version(given) != self._version

    def refresh(self) -> None:
        """Read the secrets again.

        Raises:
            ConfigError: a secret cannot be found, or is not usable.
        """
        given = settings.resolve(self._source.consumer, "source.consumer")
        self._version = _version(given)
        self.current = _for_java(self._source, given)


def _for_java(source: KafkaSourceConfig, given: Mapping[str, str]) -> dict[str, str]:
    try:
        translated = java_properties(given)
    except ValueError as error:
        raise ConfigError([Problem("source.consumer", str(error))]) from None
    return {
        **translated,
        "bootstrap.servers": source.bootstrap_servers,
        "isolation.level": source.isolation_level,
    }


def _version(given: Mapping[str, str]) -> object:
    """Return what differs if a value, or a file that a value names, is replaced."""
    return dict(given), [_file_version(given[name]) for name in _FILES if name in given]


def _file_version(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:  # the client reports it
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
