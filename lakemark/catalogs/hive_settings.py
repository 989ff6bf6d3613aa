"""Where a Hive metastore is, and how it is called. This module needs no library of Hive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from lakemark.catalogs.catalog_options import check_options
from lakemark.errors import InvalidConfig

_DEFAULT_PORT = 9083
_DEFAULT_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class HiveSettings:
    """The servers of a Hive metastore.

    Attributes:
        servers: the host and port of each server; the first one that answers is used.
        user: the user in whose name the metastore acts; None for the user of this process.
        timeout_s: the seconds for which a call waits for an answer.
    """

    servers: tuple[tuple[str, int], ...]
    user: str | None = None
    timeout_s: float = _DEFAULT_TIMEOUT_S

    @classmethod
    def of(cls, options: Mapping[str, str]) -> HiveSettings:
        """Parse the options of the catalog ``hive``.

        Args:
            options: ``uris`` as in ``hive.metastore.uris``; ``user`` and ``timeout_s``.

        Raises:
            InvalidConfig: an option is missing, unknown or wrong.
        """
        check_options("hive", options, required=("uris",), optional=("user", "timeout_s"))
        servers = tuple(_server(uri.strip()) for uri in options["uris"].split(","))
        return cls(servers, options.get("user") or None, _seconds(options.get("timeout_s")))

    def __str__(self) -> str:
        return ",".join(f"thrift://{host}:{port}" for host, port in self.servers)


def _server(uri: str) -> tuple[str, int]:
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme != "thrift" or parts.username or parts.path.strip("/"):
        message = "option uris of catalog hive: expected thrift://HOST:PORT, separated by commas"
        raise InvalidConfig(message)
    return host, port or _DEFAULT_PORT


def _seconds(text: str | None) -> float:
    if text is None:
        return _DEFAULT_TIMEOUT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 600:
        message = (
            f"option timeout_s of catalog hive is {text!r}; expected a number of seconds, up to 600"
        )
        raise InvalidConfig(message)
    return seconds
