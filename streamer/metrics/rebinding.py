"""Recognises requests of web pages whose DNS name was changed to a local address (DNS rebinding).

A page of ``http://attacker.example:9464`` may not read what another origin answers. But if the
attacker's DNS server then answers ``127.0.0.1`` for this name, the browser asks a program on its
own machine, and lets the page read the answer. Such a request has the attacker's name and port in
its header ``Host``.
"""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

#: The port of a header ``Host`` without a port.
_HTTP_PORT = 80


def is_rebound(host: str, listens_on: str, port: int) -> bool:
    """Return whether a request may come from such a page.

    Only an endpoint on a loopback address is protected: other endpoints are asked by any name.
    Nobody can own the names that are accepted: IP addresses, ``localhost`` and names without a dot.
    A proxy may keep the name that its own clients use. It listens on another port as a rule, and
    the page of an attacker must use the port of the endpoint. So other ports are accepted, too.

    Args:
        host: the header ``Host``; empty if there is none, because browsers always send it.
        listens_on: the IP address on which the endpoint listens.
        port: the port on which the endpoint listens.
    """
    if not host or not ip_address(listens_on).is_loopback:
        return False
    try:
        url = urlsplit(f"//{host}")
        name, asked_port = (url.hostname or "").rstrip("."), url.port or _HTTP_PORT
    except ValueError:  # no browser sends this
        return False
    return asked_port == port and not _is_local(name)


def _is_local(name: str) -> bool:
    with suppress(ValueError):
        ip_address(name)
        return True
    return "." not in name or name.endswith(".localhost")
