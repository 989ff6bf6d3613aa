"""Posts a JSON message about each commit to an HTTP server."""

from __future__ import annotations

from streamer.hooks.http_client import HTTP_OPTIONS, HttpAddress, HttpClient
from streamer.hooks.messages import FORMATS
from streamer.hooks.notices import CommitCompleted, Notice
from streamer.hooks.settings import HookSettings

_KIND = "http"
_OPTIONAL = ("format", *HTTP_OPTIONS)


class HttpHook:
    """Posts each commit. The server has the message when it answers with 2xx.

    Args:
        settings: the URL, the format of the messages, and the headers.

    Raises:
        InvalidConfig: a setting is missing, unknown or wrong.
    """

    def __init__(self, settings: HookSettings) -> None:
        check_http(settings)
        self._encode = FORMATS[settings.options.get("format", "lakemark")]
        headers = {"Content-Type": "application/json", "User-Agent": "lakemark"}
        self._client = HttpClient(HttpAddress.of(_KIND, settings), headers)

    def send(self, notice: Notice, /) -> bool:
        """See ``Hook``."""
        if not isinstance(notice, CommitCompleted):
            return False
        self._client.post(self._encode(notice))
        return True

    def check(self) -> str:
        """See ``Hook``. The request is OPTIONS, which servers must not take for a message."""
        return self._client.check()

    def close(self) -> None:
        """See ``Hook``; each request has closed its connection."""


def check_http(settings: HookSettings) -> None:
    """Check the settings of the hook ``http``.

    Raises:
        InvalidConfig: a setting is missing, unknown or wrong.
    """
    settings.check_names(_KIND, required=("url",), optional=_OPTIONAL)
    settings.refuse(_KIND, "properties")
    settings.one_of(_KIND, "format", tuple(FORMATS), "lakemark")
    HttpAddress.of(_KIND, settings)
