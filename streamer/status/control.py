"""Lets clients of the endpoint pause, resume and stop a pipeline, and request table services."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum

from streamer.requested_services import RequestedServices, RunnableService


class RunAction(StrEnum):
    """What a client may ask for; the value is the last part of the path of its request."""

    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"


class PipelineControl:
    """The switches of one pipeline. Any thread may use them.

    Attributes:
        paused: set while the pipeline should pause. It outlives restarts of the pipeline.
    """

    def __init__(self) -> None:
        self.paused = threading.Event()
        self._stop: Callable[[], object] | None = None
        self._services: RequestedServices | None = None

    def bind_stop(self, stop: Callable[[], object]) -> None:
        """Call this function at the action ``stop``, which is possible from now on."""
        self._stop = stop

    def possible(self) -> tuple[RunAction, ...]:
        """Return the actions that a pipeline can perform now, if it has not ended."""
        if self._stop is None:  # it still starts, or is no pipeline
            return ()
        return (RunAction.RESUME if self.paused.is_set() else RunAction.PAUSE, RunAction.STOP)

    def bind_services(self, services: RequestedServices | None) -> None:
        """Pass requests for services to these; None to refuse them again."""
        self._services = services

    def possible_services(self) -> tuple[RunnableService, ...]:
        """Return the services that can be requested now; none during a pause, or at a start."""
        services = self._services
        return () if services is None or self.paused.is_set() else services.possible

    def request(self, service: RunnableService) -> None:
        """Ask the pipeline for a possible service, and do not wait for the result."""
        if (services := self._services) is not None:
            services.request(service)

    def perform(self, action: RunAction) -> None:
        """Ask the pipeline for a possible action, and do not wait for the result."""
        if action is RunAction.PAUSE:
            self.paused.set()
        elif action is RunAction.RESUME:
            self.paused.clear()
        elif self._stop is not None:
            self._stop()
