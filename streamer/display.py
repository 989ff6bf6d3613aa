"""Shows a run: a live display on a terminal, or one line for each event anywhere else."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from streamer.event_text import describe
from streamer.events import (
    Alive,
    BatchPlanned,
    BatchWritten,
    Event,
    HookSent,
    Listener,
    RunFailed,
    RunStarted,
)
from streamer.wording import counted, size_text

_SHOWN_BATCHES = 8
_SHOWN_NOTES = 4
_REFRESHES_PER_S = 4


@contextmanager
def show_run(
    console: Console | None = None, redacted: Callable[[str], str] = str
) -> Iterator[Listener]:
    """Yield a listener that shows a run until the block ends.

    Args:
        console: where to print; None for standard output.
        redacted: removes secrets from a text.
    """
    console = console or Console()
    if not console.is_terminal:
        yield PlainLines(console, redacted)
        return
    shown = LiveDisplay(redacted)
    with Live(
        get_renderable=shown.render, console=console, refresh_per_second=_REFRESHES_PER_S
    ) as live:
        yield shown
        live.refresh()


class PlainLines:
    """Prints one line for each event, with the time in UTC.

    Args:
        console: where to print.
        redacted: removes secrets from a text.
        pipeline: the name of the pipeline, if the output shows several; printed in each line.
    """

    def __init__(
        self, console: Console, redacted: Callable[[str], str] = str, pipeline: str = ""
    ) -> None:
        self._console, self._redacted, self._pipeline = console, redacted, pipeline

    def __call__(self, event: Event, /) -> None:
        """Print the event.

        The ``RunFailed`` of the only pipeline is skipped, because the command prints its message.
        ``HookSent`` is skipped, because it follows each batch.
        """
        is_printed_elsewhere = isinstance(event, RunFailed) and not self._pipeline
        if is_printed_elsewhere or isinstance(event, HookSent):
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        name = f"{self._pipeline}: " if self._pipeline else ""
        text = f"{now} {name}{self._redacted(describe(event))}"
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveDisplay:
    """Collects events, and renders the current state of the run."""

    def __init__(self, redacted: Callable[[str], str] = str) -> None:
        self._redacted = redacted
        self._began = time.monotonic()
        self._started: RunStarted | None = None
        self._planned: BatchPlanned | None = None
        self._planned_at = 0.0
        self._batches: deque[BatchWritten] = deque(maxlen=_SHOWN_BATCHES)
        self._notes: deque[str] = deque(maxlen=_SHOWN_NOTES)
        self._commits = self._records = self._rows = self._rejects = 0
        self._busy_s = 0.0

    def __call__(self, event: Event, /) -> None:
        """Add the event to the display."""
        if isinstance(event, RunStarted):
            self._started = event
        elif isinstance(event, BatchPlanned):
            self._planned, self._planned_at = event, time.monotonic()
        elif isinstance(event, BatchWritten):
            self._add(event)
        elif not isinstance(event, Alive | HookSent | RunFailed):  # not shown here
            self._notes.append(self._redacted(describe(event)))

    def render(self) -> RenderableType:
        """Return what the display shows now."""
        parts: list[RenderableType] = [self._header(), self._totals()]
        if self._batches:
            parts.append(_batch_table(self._batches))
        parts.extend(Text(f"· {note}", style="dim") for note in self._notes)
        parts.append(self._now())
        return Group(*parts)

    def _add(self, batch: BatchWritten) -> None:
        self._batches.append(batch)
        self._planned = None
        self._commits += batch.instant is not None
        self._records += batch.records_read
        self._rows += batch.rows_written
        self._rejects += batch.rejects
        # The sum of the stages would be too long, because batches are read ahead.
        self._busy_s += time.monotonic() - self._planned_at

    def _header(self) -> RenderableType:
        started = self._started
        if started is None:
            return Text("starting Spark …", style="bold")
        text = f"[bold]{escape(started.pipeline)}[/]  {started.topic} → {escape(started.table)}"
        return Text.from_markup(text)

    def _totals(self) -> RenderableType:
        rate = self._records / self._busy_s if self._busy_s else 0.0
        return Text.from_markup(
            f"{_bold(self._records, 'record')}  {_bold(self._rows, 'row')}  "
            f"{_bold(self._rejects, 'reject')}  {_bold(self._commits, 'commit')}  "
            f"[bold]{rate:,.0f}[/] records/s while busy  {self._age_s():.0f} s"
        )

    def _now(self) -> RenderableType:
        planned = self._planned
        if planned is None:
            text = "waiting for records" if self._started else ""
            return Text(text, style="dim")
        seconds = time.monotonic() - self._planned_at
        return Text(f"batch {planned.batch_id}: {planned.records:,} records, {seconds:.1f} s …")

    def _age_s(self) -> float:
        return time.monotonic() - self._began


def _bold(count: int, noun: str) -> str:
    number, name = counted(count, noun).split()
    return f"[bold]{number}[/] {name}"


def _batch_table(batches: deque[BatchWritten]) -> Table:
    stages = list(dict.fromkeys(name for batch in batches for name in batch.stage_s))
    shown = Table(show_edge=False, pad_edge=False, header_style="dim")
    for title in ("batch", "commit"):
        shown.add_column(title)
    for title in ("records", "rows", "deletes", "rejects", "size", "seconds", *stages, "behind"):
        shown.add_column(title, justify="right")
    for batch in batches:
        shown.add_row(
            str(batch.batch_id),
            batch.instant or "none",
            f"{batch.records_read:,}",
            f"{batch.rows_written:,}",
            f"{batch.rows_deleted:,}",
            f"{batch.rejects:,}",
            size_text(batch.bytes_written),
            f"{batch.seconds:.2f}",
            *(f"{batch.stage_s[name]:.2f}" if name in batch.stage_s else "" for name in stages),
            f"{sum(batch.lag.values()):,}" if batch.lag else "",
        )
    return shown
