"""Events as JSON, one object a line, for programs that watch a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from streamer.events import Event, Listener


@contextmanager
def event_log(path: Path | None, next_listener: Listener) -> Iterator[Listener]:
    """A listener that appends each event to ``path``, if there is one, and passes it on.

    A line holds the event's name as ``event``, the time as ``at`` and the event's own fields. It
    is whole as soon as the event was told.
    """
    if path is None:
        yield next_listener
        return
    with path.open("a", encoding="utf-8", buffering=1) as file:

        def listen(event: Event, /) -> None:
            at = datetime.now(UTC).isoformat()
            line = {"event": type(event).__name__, "at": at, **asdict(event)}
            file.write(json.dumps(line, default=str) + "\n")
            next_listener(event)

        yield listen
