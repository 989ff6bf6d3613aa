"""Reports the failure of a run as an event, on stderr and in the file of ``--events``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from streamer.event_log import JsonLines, event_log
from streamer.events import Event, Listener, RunFailed
from streamer.stopping import StopSignals


@contextmanager
def report_bad_file(arguments: argparse.Namespace) -> Iterator[None]:
    """Emit an event, without the name of a pipeline, if the pipeline file is not valid.

    The secrets of a pipeline file are in no error. Those of a property file may be, so
    ``arguments.redacted``, which the block sets, removes them.
    """
    try:
        yield
    except Exception as error:
        is_json = arguments.log_format == "json"
        redacted = getattr(arguments, "redacted", str)
        json_lines = JsonLines(sys.stderr, redacted)
        shown: Listener = json_lines.listener("") if is_json else _print_nothing
        with event_log(arguments.events, "", redacted, shown) as listener:
            listener(RunFailed(type(error).__name__, str(error)))
        arguments.is_reported = is_json and not arguments.debug
        raise


def _print_nothing(event: Event, /) -> None:
    """Print nothing, because the command line prints the error."""


@contextmanager
def report_failures(
    listener: Listener, arguments: argparse.Namespace, signals: StopSignals
) -> Iterator[None]:
    """Emit an event if the block fails. With JSON output, this event is the only report."""
    try:
        yield
    except Exception as error:
        if signals.is_asked_early:  # the stop was requested during a call, which then fails
            raise
        listener(RunFailed(type(error).__name__, str(error)))
        arguments.is_reported = arguments.log_format == "json" and not arguments.debug
        raise
