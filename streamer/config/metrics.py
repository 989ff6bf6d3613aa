"""``metrics``: the endpoint for metrics, health and status."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from streamer.config import settings
from streamer.config.errors import Problem
from streamer.config.section import Section
from streamer.config.settings import Secret

#: The path of the token in the pipeline file.
TOKEN_PATH = "metrics.action_token"

#: The least length of the token. A random token of this length cannot be guessed over a network.
LEAST_TOKEN_LENGTH = 16


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

    action_token: Secret | None = None
    """A secret of at least 16 characters. With it, the status page and other clients can pause,
    resume and stop pipelines ([Actions](status_page.md#actions)). Without it, they cannot. A file
    or variable is read at each request."""

    def unresolved(self) -> list[Problem]:
        """Return a problem if the token cannot be found, or is too short."""
        if self.action_token is None:
            return []
        path, _, name = TOKEN_PATH.rpartition(".")
        problems = settings.unresolved({name: self.action_token}, path)
        if not problems and len(self.action_token.resolve()) < LEAST_TOKEN_LENGTH:
            text = f"shorter than {LEAST_TOKEN_LENGTH} characters; openssl rand -hex 16 prints one"
            problems = [Problem(TOKEN_PATH, text)]
        return problems
