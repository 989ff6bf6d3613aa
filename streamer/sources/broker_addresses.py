"""The addresses of Kafka brokers, as Kafka's clients accept them."""

from __future__ import annotations

import re

#: The clients ignore a protocol before the host.
_BROKER = re.compile(r"([A-Za-z_]+://)?([\w.-]+|\[[\da-fA-F:.%\w]+\]):(\d{1,5})", re.ASCII)
_LARGEST_PORT = 65_535


def check_addresses(given: str) -> None:
    """Check a list of brokers, ``host:port,host:port``.

    Raises:
        ValueError: one of them has no port, or is no address.
    """
    for broker in given.split(","):
        found = _BROKER.fullmatch(broker.strip())
        if found is None or not 1 <= int(found[3]) <= _LARGEST_PORT:
            message = (
                "expected host:port, or several separated by commas; a port is a number "
                f"from 1 to {_LARGEST_PORT}"
            )
            raise ValueError(message)
