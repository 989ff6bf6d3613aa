"""``lakemark run``: runs the pipeline that a file describes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from streamer import display, pipeline
from streamer.capture_logs import capture_logs, log_clashes
from streamer.config.load import load
from streamer.config.pipeline import PipelineConfig
from streamer.config.secrets import build_redactor
from streamer.event_log import JsonEventWriter, event_log
from streamer.events import Event, Listener, RunFailed, WarningLogged
from streamer.keepalive import emit_keepalives
from streamer.metrics.server import monitor_run
from streamer.stopping import StopSignals, stop_on_signals


def execute(arguments: argparse.Namespace) -> int:
    """Run until caught up or stopped. Ctrl-C and SIGTERM end the run normally, with exit code 0.

    Raises:
        ConfigError: the pipeline file is not valid.
        CannotListen: another process uses the port of the metrics endpoint.
        HudiError: the run failed permanently.
    """
    with _report_bad_file(arguments):
        config = load(arguments.pipeline, [*arguments.overrides, *_overrides(arguments)])
    arguments.redacted = build_redactor(config)
    with (
        stop_on_signals() as signals,
        _output(arguments, config) as shown,
        monitor_run(config, shown) as monitor,
        capture_logs(lambda *warning: monitor.listener(WarningLogged(*warning))),
        _report_failures(monitor.listener, arguments, signals),
    ):
        log_clashes()
        with (
            pipeline.build(config, monitor.listener) as built,
            monitor.watch(built),
            _alive(built, monitor.listener, config),
        ):
            signals.watch(built.loop.stop)
            arguments.loop = built.loop
            built.loop.run()
    return 0


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
            shown: Listener = JsonEventWriter(sys.stderr, config.name, redacted)
        else:
            shown = ended.enter_context(display.show_run(redacted=redacted))
        log = event_log(arguments.events, config.name, redacted, shown)
        yield ended.enter_context(log)


@contextmanager
def _report_bad_file(arguments: argparse.Namespace) -> Iterator[None]:
    """Emit an event, without the name of a pipeline, if the pipeline file is not valid."""
    try:
        yield
    except Exception as error:
        is_json = arguments.log_format == "json"
        shown: Listener = JsonEventWriter(sys.stderr, "", str) if is_json else _print_nothing
        with event_log(arguments.events, "", str, shown) as listener:
            listener(RunFailed(type(error).__name__, str(error)))
        arguments.is_reported = is_json and not arguments.debug
        raise


def _print_nothing(event: Event, /) -> None:
    """Print nothing, because the command line prints the error."""


@contextmanager
def _report_failures(
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


def _overrides(arguments: argparse.Namespace) -> Sequence[str]:
    chosen = {
        "run.mode=once": arguments.once,
        "run.mode=continuous": arguments.continuous,
        "table.drop_metadata_table=true": arguments.drop_metadata_table,
    }
    return [override for override, wanted in chosen.items() if wanted]
