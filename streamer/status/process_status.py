"""The status of a process and of its pipelines, in the form of ``/status.json``."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version

from streamer.health import Judge
from streamer.status.action_token import ActionToken
from streamer.status.pipeline_status import PipelineStatus

#: The version of the form of ``/status.json``. Fields are only added while it stays the same.
FORMAT = 1

#: An answer is used again for this time, so that many clients cost no more than one.
_CACHED_S = 0.5


class ProcessStatus:
    """The status of a process. Any thread may ask for it; nothing is computed without a request.

    Attributes:
        token: see below.
        has_page: see below.

    Args:
        health: the health of the process.
        token: the token of requests for actions; None to refuse them.
        has_page: whether the status may be shown. If not, only actions are accepted.
        monotonic_s: returns seconds of a clock that is never set back.
    """

    def __init__(
        self,
        health: Judge,
        token: ActionToken | None = None,
        *,
        has_page: bool = True,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.token, self.has_page = token, has_page
        self._health, self._monotonic_s = health, monotonic_s
        self._started_at, self._version = time.time(), version("lakemark")
        self._pipelines: Mapping[str, PipelineStatus] = {}
        self._answering = threading.Lock()
        self._answers: dict[str | None, tuple[float, bytes]] = {}

    def add(self, pipeline: PipelineStatus) -> None:
        """Add a pipeline. Two threads must not add pipelines at the same time."""
        self._pipelines = {**self._pipelines, pipeline.name: pipeline}

    def find(self, pipeline: str) -> PipelineStatus | None:
        """Return a pipeline by its name; None if there is none."""
        return self._pipelines.get(pipeline)

    @property
    def names(self) -> list[str]:
        """The names of the pipelines."""
        return list(self._pipelines)

    def to_json(self, detailed: str | None) -> bytes:
        """Return the status as JSON in UTF-8.

        Args:
            detailed: the name of the only pipeline whose details are returned; None for the details
                of all pipelines. If there is no such pipeline, no details are returned.
        """
        if detailed is not None and detailed not in self._pipelines:
            detailed = ""  # one answer for all unknown names
        with self._answering:
            too_old_s = self._monotonic_s() - _CACHED_S
            fresh = {name: one for name, one in self._answers.items() if one[0] > too_old_s}
            if detailed not in fresh:
                answer = json.dumps(self._report(detailed), allow_nan=False).encode()
                fresh[detailed] = (self._monotonic_s(), answer)
            self._answers = fresh
            return fresh[detailed][1]

    def _report(self, detailed: str | None) -> dict[str, object]:
        verdict = self._health.verdict()
        return {
            "format": FORMAT,
            "version": self._version,
            "at": time.time(),
            "started_at": self._started_at,
            "is_alive": verdict.is_alive,
            "is_ready": verdict.is_ready,
            "accepts_actions": self.token is not None,
            "pipelines": [
                one.report(with_details=detailed is None or name == detailed)
                for name, one in self._pipelines.items()
            ],
        }
