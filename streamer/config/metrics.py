"""``metrics``: what a run tells monitoring, and where."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from streamer.config.section import Section


class MetricsConfig(Section):
    """An HTTP endpoint with ``/metrics``, ``/health`` and ``/ready``; off without a port."""

    port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    """Where it listens; 0 for a free port, which the run's first line names."""

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """The address to listen on; ``0.0.0.0`` for all, such as in a container."""

    look_interval_s: Annotated[float, Field(gt=0, le=86_400)] = 10.0
    """Seconds between two looks at the topic and at the table, for lag and file sizes. They are
    beside the stream: it does not wait for them."""

    stuck_after_s: Annotated[float, Field(gt=0)] = 600.0
    """``/health`` answers 503 when a batch, a service or the start takes longer than so many
    seconds, or when so long nothing but retries happened."""
