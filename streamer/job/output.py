"""The output of a job: its events, as lines for people or for programs, and its summary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from streamer.display import PlainLines
from streamer.event_log import JsonLines
from streamer.events import Event, Listener
from streamer.job.outcome import Outcome
from streamer.row_output import print_grid, screen_value


@contextmanager
def job_output(
    events: Path | None, redacted: Callable[[str], str], *, is_json: bool
) -> Iterator[Callable[[str], Listener]]:
    """Yield a function that returns the listener of a pipeline, by name; "" for the process.

    Args:
        events: the file to which the events are appended; None for no file.
        redacted: removes the secrets of all pipelines from a text.
        is_json: whether the output is for programs.
    """
    console, lines = Console(), JsonLines(sys.stderr, redacted)

    def shown(pipeline: str) -> Listener:
        if is_json:
            return lines.listener(pipeline)
        return PlainLines(console, redacted, pipeline)

    if events is None:
        yield shown
        return
    with events.open("a", encoding="utf-8") as file:
        log = JsonLines(file, redacted)
        yield lambda pipeline: _both(log.listener(pipeline), shown(pipeline))


def print_summary(outcomes: Sequence[Outcome], redacted: Callable[[str], str]) -> None:
    """Print a table with one line for each pipeline, then the errors of those that failed."""
    console, rows = Console(), [one.row() for one in outcomes]
    print_grid(
        [{name: screen_value(value) for name, value in row.items()} for row in rows], console
    )
    for one in outcomes:
        if one.has_failed:
            text = redacted(f"{one.pipeline}: {one.error}")
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def _both(first: Listener, second: Listener) -> Listener:
    def listen(event: Event, /) -> None:
        first(event)
        second(event)

    return listen
