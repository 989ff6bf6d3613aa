"""``metrics``: the endpoint for metrics, health and status."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from streamer.config.section import Section


class MetricsConfig(Section):
    """An HTTP endpoint with ``/metrics``, ``/health``, ``/ready`` and the status page.

    If no port is set, there is no endpoint.
    """

    port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    """The port to listen on. 0 chooses a free port, which the run prints in its first line."""

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """The address to listen on. ``0.0.0.0`` means all addresses, for example in a container."""

    poll_interval_s: Annotated[float, Field(gt=0, le=86_400)] = 10.0
    """Seconds between two polls of the lag and file sizes. The polls do not delay the stream."""

    stuck_after_s: Annotated[float, Field(gt=0)] = 600.0
    """``/health`` answers 503 if a batch, a service or the start takes longer than this number of
    seconds, or if all attempts have failed for this long."""

    status_page: bool = True
    """Whether the endpoint serves the [status page](status_page.md) (``/``) and ``/status.json``.
    Both show the settings without secrets, and values of rejected records."""
