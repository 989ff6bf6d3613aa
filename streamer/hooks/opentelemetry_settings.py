"""The settings of the hook ``opentelemetry``. This module needs no library of OpenTelemetry."""

from __future__ import annotations

from streamer.hooks.http_client import HTTP_OPTIONS, HttpAddress
from streamer.hooks.settings import HookSettings

_KIND = "opentelemetry"

#: The name of the service in traces, by default.
DEFAULT_SERVICE = "lakemark"


def check_opentelemetry(settings: HookSettings) -> HttpAddress:
    """Check the settings of the hook ``opentelemetry``; return where its spans are sent.

    Raises:
        InvalidConfig: a setting is missing, unknown or wrong.
    """
    settings.check_names(_KIND, required=("url",), optional=("service_name", *HTTP_OPTIONS))
    settings.refuse(_KIND, "properties")
    return HttpAddress.of(_KIND, settings)
