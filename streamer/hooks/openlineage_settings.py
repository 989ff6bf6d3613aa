"""The settings of the hook ``openlineage``. This module needs no library of OpenLineage."""

from __future__ import annotations

from streamer.hooks.http_client import HTTP_OPTIONS, HttpAddress
from streamer.hooks.settings import HookSettings

_KIND = "openlineage"

#: The namespace of jobs, by default.
DEFAULT_NAMESPACE = "lakemark"


def check_openlineage(settings: HookSettings) -> HttpAddress:
    """Check the settings of the hook ``openlineage``; return where its events are sent.

    Raises:
        InvalidConfig: a setting is missing, unknown or wrong.
    """
    settings.check_names(_KIND, required=("url",), optional=("namespace", *HTTP_OPTIONS))
    settings.refuse(_KIND, "properties")
    return HttpAddress.of(_KIND, settings)
