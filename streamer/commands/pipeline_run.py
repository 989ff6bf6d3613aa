"""Runs one pipeline for a command: its snapshot, if that is due, and then its source."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from streamer import display, pipeline
from streamer.capture_logs import capture_logs, log_clashes
from streamer.commands.run_failures import report_failures
from streamer.config.pipeline import PipelineConfig
from streamer.config.secrets import build_redactor
from streamer.event_log import JsonLines, event_log
from streamer.events import CAUGHT_UP, Listener, RunStopped, WarningLogged
from streamer.keepalive import emit_keepalives
from streamer.loop import StreamLoop
from streamer.metrics.server import RunMonitor, monitor_run
from streamer.snapshot import find_state
from streamer.stopping import StopSignals, stop_on_signals

_LOG = logging.getLogger(__name__)


def run_pipeline(
    arguments: argparse.Namespace, config: PipelineConfig, warnings: Sequence[str] = ()
) -> bool:
    """Run one pipeline until it has caught up or is stopped; return whether it has caught up.

    Args:
        arguments: the options of the output. Receives the loop, and what removes secrets.
        config: the pipeline.
        warnings: texts that are reported first.

    Raises:
        HudiError: the run failed permanently.
    """
    arguments.redacted = build_redactor(config)
    has_caught_up = False
    with (
        stop_on_signals() as signals,
        _output(arguments, config) as shown,
        monitor_run(config, shown) as monitor,
        capture_logs(lambda *warning: monitor.listener(WarningLogged(*warning))),
        report_failures(monitor.listener, arguments, signals),
    ):
        log_clashes()
        for warning in warnings:
            _LOG.warning("%s", warning)
        snapshot: StreamLoop | None = None
        if find_state(config).is_due:
            opened = pipeline.build_snapshot(
                config, monitor.listener, paused=monitor.control.paused
            )
            snapshot, stopped = _run_loop(arguments, config, opened, monitor, signals)
            if stopped.reason != CAUGHT_UP:
                return False
        opened = pipeline.build(
            config,
            monitor.listener,
            paused=monitor.control.paused,
            is_snapshot_read=snapshot is not None,
        )
        _, stopped = _run_loop(arguments, config, opened, monitor, signals, snapshot)
        has_caught_up = stopped.reason == CAUGHT_UP
    return has_caught_up  # False, if a signal has ended the block


def _run_loop(
    arguments: argparse.Namespace,
    config: PipelineConfig,
    opened: AbstractContextManager[pipeline.Pipeline],
    monitor: RunMonitor,
    signals: StopSignals,
    previous: StreamLoop | None = None,
) -> tuple[StreamLoop, RunStopped]:
    """Open a pipeline, and run its loop; return the loop, which has ended, and how it has.

    Args:
        arguments: the arguments of the command; they get the loop.
        config: the configuration of the pipeline.
        opened: opens the pipeline.
        monitor: monitors the run.
        signals: stop the run.
        previous: the loop that has read the snapshot; it is asked to stop until this one exists.
    """
    with (
        opened as built,
        monitor.watch(built),
        _alive(built, monitor.listener, config),
    ):
        signals.watch(built.loop.stop)
        monitor.control.bind_stop(built.loop.stop)
        arguments.loop = built.loop
        if previous is not None and previous.is_stopping:
            built.loop.stop()
        stopped = built.loop.run()
    return built.loop, stopped


def _alive(
    built: pipeline.Pipeline, listener: Listener, config: PipelineConfig
) -> AbstractContextManager[None]:
    return emit_keepalives(built.loop, built.source, listener, config.run.alive_interval_s)


@contextmanager
def _output(arguments: argparse.Namespace, config: PipelineConfig) -> Iterator[Listener]:
    """Yield the listener of the output: a display or JSON lines, and the file of ``--events``."""
    redacted = arguments.redacted
    with ExitStack() as ended:
        if arguments.log_format == "json":
            shown: Listener = JsonLines(sys.stderr, redacted).listener(config.name)
        else:
            shown = ended.enter_context(display.show_run(redacted=redacted))
        log = event_log(arguments.events, config.name, redacted, shown)
        yield ended.enter_context(log)
