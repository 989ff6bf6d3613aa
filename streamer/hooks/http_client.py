"""Sends HTTP requests to one address. No message contains its path, query or headers.

The address of a webhook is often a secret by itself, so messages name only the server.
"""

from __future__ import annotations

import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from lakemark.errors import InvalidConfig
from streamer.hooks.hook import HookUnavailable, NoticeRefused
from streamer.hooks.settings import HookSettings

#: Seconds for which a request waits for the server, by default.
DEFAULT_TIMEOUT_S = 10.0

#: Answers that say that this very message is wrong, so that sending it again is in vain.
_REFUSED = (400, 413, 422)

#: The optional options of each hook that sends requests; ``url`` is required.
HTTP_OPTIONS = ("timeout_s", "ca_file")

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

#: Headers that follow from the body or the connection.
_OWN_HEADERS = ("content-length", "host", "transfer-encoding", "connection")


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """Where requests are sent, and with what.

    Attributes:
        url: the URL; it may be a secret.
        headers: the headers of each request; they may be secrets.
        timeout_s: the seconds for which a request waits for the server.
        ca_file: a file with the certificates that are trusted instead of the system's; None if none
            is given.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = DEFAULT_TIMEOUT_S
    ca_file: str | None = None

    @classmethod
    def of(cls, kind: str, settings: HookSettings) -> HttpAddress:
        """Check the options in ``HTTP_OPTIONS``, and the headers.

        Raises:
            InvalidConfig: one of them is wrong.
        """
        _check_url(kind, settings.options["url"])
        for name, value in settings.headers.items():
            _check_header(kind, name, value)
        ca_file = settings.options.get("ca_file")
        if ca_file is not None:
            _load_certificates(kind, ca_file)
        timeout_s = settings.seconds(kind, "timeout_s", DEFAULT_TIMEOUT_S)
        return cls(settings.options["url"], settings.headers, timeout_s, ca_file)

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


class HttpClient:
    """Sends requests to one address, each on a connection of its own.

    Args:
        address: the address.
        headers: the headers that the configured ones may replace.
    """

    def __init__(self, address: HttpAddress, headers: Mapping[str, str]) -> None:
        self._address = address
        self._headers = {**headers, **address.headers}
        context = None
        if address.url.startswith("https:"):
            context = ssl.create_default_context(cafile=address.ca_file)
        handler = urllib.request.HTTPSHandler(context=context)
        self._opener = urllib.request.build_opener(handler, _NoRedirects)

    def post(self, body: bytes) -> None:
        """Post a body, and return when the server has accepted it (2xx).

        Raises:
            HookUnavailable: the server does not answer, or answers otherwise.
            NoticeRefused: the server answers that the body is wrong: 400, 413 or 422.
        """
        status = self._request("POST", body)
        message = f"{self._address} answers POST with {status}"
        if status in _REFUSED:
            raise NoticeRefused(message)
        if not 200 <= status < 300:
            raise HookUnavailable(_with_hint(message, status))

    def check(self) -> str:
        """Send a request without a body (OPTIONS), and return what the server answers.

        Raises:
            HookUnavailable: the server does not answer, fails, or refuses the credentials.
        """
        status = self._request("OPTIONS", None)
        answer = f"{self._address} answers OPTIONS with {status}"
        if status in (401, 403) or status >= 500:
            raise HookUnavailable(_with_hint(answer, status))
        return answer

    def _request(self, method: str, body: bytes | None) -> int:
        headers = self._headers if body is not None else self._address.headers
        request = urllib.request.Request(
            self._address.url, body, headers=dict(headers), method=method
        )
        try:
            with self._opener.open(request, timeout=self._address.timeout_s) as answer:
                status: int = answer.status
                return status
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except (OSError, HTTPException) as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else None
            message = f"{self._address} does not answer: {reason or type(cause).__name__}"
            raise HookUnavailable(message) from None


def _with_hint(message: str, status: int) -> str:
    return f"{message}; {_HINTS.get(status, 'look into the log of the server')}"


_HINTS = {
    301: "set the URL to which the server redirects",
    302: "set the URL to which the server redirects",
    303: "set the URL to which the server redirects",
    307: "set the URL to which the server redirects",
    308: "set the URL to which the server redirects",
    401: "correct the headers with the credentials",
    403: "correct the headers with the credentials",
    404: "correct the URL",
    405: "correct the URL",
    429: "the server wants fewer requests",
}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, because another server would receive the message and the headers."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> None:
        """Return None: the answer is an error."""


def _check_url(kind: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_usable = is_usable and parts.port != 0 and not re.search(r"[\x00-\x20\x7f]", url)
    except ValueError:
        is_usable = False
    if not is_usable or not url.isascii():
        message = f"option url of hook {kind}: expected http://HOST:PORT/PATH or https://…"
        raise InvalidConfig(message)
    if parts.username is not None:
        message = (
            f"option url of hook {kind} contains a user or a password; use headers, such as "
            "Authorization, from a file or an environment variable"
        )
        raise InvalidConfig(message)


def _check_header(kind: str, name: str, value: str) -> None:
    if not _TOKEN.fullmatch(name) or name.lower() in _OWN_HEADERS:
        message = f"header {name!r} of hook {kind} cannot be set; remove it"
        raise InvalidConfig(message)
    if not _VALUE.fullmatch(value):
        message = (
            f"header {name} of hook {kind} contains a character that headers cannot have, such as "
            "a line break"
        )
        raise InvalidConfig(message)


def _load_certificates(kind: str, ca_file: str) -> None:
    try:
        ssl.create_default_context(cafile=str(Path(ca_file)))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it contains no certificates"
        message = f"option ca_file of hook {kind}: cannot read {ca_file}: {reason}"
        raise InvalidConfig(message) from None
