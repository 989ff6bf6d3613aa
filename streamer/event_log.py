"""Writes events for programs: one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TextIO

from streamer.config.masking import redact_tree
from streamer.events import Event, Listener


class JsonLines:
    """Writes each event of one or several pipelines as a JSON object, and flushes it at once.

    Each object contains ``time`` (UTC, ISO 8601), ``pipeline``, ``event`` (the name of the event's
    class) and the fields of the event (``streamer.events``).

    Args:
        out: where lines are written.
        redacted: removes secrets from a text.
    """

    def __init__(self, out: TextIO, redacted: Callable[[str], str]) -> None:
        self._out, self._redacted = out, redacted
        self._writing = Lock()

    def listener(self, pipeline: str) -> Listener:
        """Return a listener that writes the events of a pipeline with this name."""
        return partial(self._write, pipeline)

    def _write(self, pipeline: str, event: Event, /) -> None:
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "pipeline": pipeline,
            "event": type(event).__name__,
            **asdict(event),
        }
        text = json.dumps(redact_tree(line, self._redacted), default=str)
        with self._writing:
            self._out.write(text + "\n")
            self._out.flush()


@contextmanager
def event_log(
    path: Path | None, pipeline: str, redacted: Callable[[str], str], next_listener: Listener
) -> Iterator[Listener]:
    """Yield a listener that appends each event to ``path``, if there is one, and passes it on."""
    if path is None:
        yield next_listener
        return
    with path.open("a", encoding="utf-8") as file:
        lines = JsonLines(file, redacted).listener(pipeline)

        def listen(event: Event, /) -> None:
            lines(event)
            next_listener(event)

        yield listen
