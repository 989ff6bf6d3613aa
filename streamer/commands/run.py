"""``lakemark run``: runs the pipelines that files describe, in one process."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from lakemark.errors import InvalidConfig
from streamer import display, pipeline
from streamer.capture_logs import capture_logs, log_clashes
from streamer.config.errors import ConfigError
from streamer.config.load import load_tree, validated
from streamer.config.pipeline import PipelineConfig
from streamer.config.secrets import build_redactor
from streamer.config.topics import has_several_topics
from streamer.event_log import JsonLines, event_log
from streamer.events import CAUGHT_UP, Event, Listener, RunFailed, RunStopped, WarningLogged
from streamer.job.files import find_files
from streamer.job.job import open_job
from streamer.job.output import job_output, print_summary
from streamer.job.plan import JobPlan, plan_job
from streamer.keepalive import emit_keepalives
from streamer.loop import StreamLoop
from streamer.metrics.server import RunMonitor, monitor_run
from streamer.migration.run_of_job import load_pipeline_of_job, read_job
from streamer.migration.secrets import build_job_redactor
from streamer.snapshot import find_state
from streamer.stopping import StopSignals, stop_on_signals

_LOG = logging.getLogger(__name__)


def execute(arguments: argparse.Namespace) -> int:
    """Run until caught up or stopped. Ctrl-C and SIGTERM end the run normally, with exit code 0.

    Raises:
        ConfigError: a pipeline file is not valid, or a secret cannot be found on this machine.
        CannotListen: another process uses the port of the metrics endpoint.
        InvalidConfig: a pipeline file and a job are named, or the job cannot become a pipeline that
            writes the same rows.
        PipelinesFailed: some of several pipelines failed permanently.
        HudiError: the run failed permanently.
    """
    overrides = [*arguments.overrides, *_overrides(arguments)]
    if arguments.props is not None:
        of_job, warnings = _load_job(arguments, overrides)
        run_pipeline(arguments, of_job, [*warnings, *_ignored(arguments)])
        return 0
    _check_is_no_job(arguments)
    with _report_bad_file(arguments):
        files = find_files(arguments.pipelines)
        config = _load_one(files, arguments.pipelines, overrides)
        plan = None if config else plan_job(files, overrides)
    if config is not None:
        run_pipeline(arguments, config, _ignored(arguments))
    elif plan is not None:
        arguments.redacted = plan.redactor()
        _run_several(arguments, plan)
    return 0


def _ignored(arguments: argparse.Namespace) -> Sequence[str]:
    """Return a warning for the option that one pipeline does not use."""
    if arguments.parallel_batches is None:
        return ()
    return ("--parallel-batches has no effect, because there is only one pipeline",)


def _load_one(
    files: Sequence[str], named: Sequence[str], overrides: Sequence[str]
) -> PipelineConfig | None:
    """Return the pipeline if the user named one file, and it describes one pipeline.

    Raises:
        ConfigError: the file is not valid, or a secret cannot be found on this machine.
    """
    if [*files] != [*named[:1]]:
        return None
    tree = load_tree(files[0], overrides)
    if has_several_topics(tree):
        return None
    config = validated(tree)
    check_resolved(config)
    return config


def _load_job(
    arguments: argparse.Namespace, overrides: Sequence[str]
) -> tuple[PipelineConfig, Sequence[str]]:
    """Return the pipeline of a job of HoodieStreamer, and warnings about the job.

    Raises:
        InvalidConfig: an argument is not one of HoodieStreamer, or pipeline files are named, too.
        IncompleteTranslation: a pipeline would not write the same rows as the job.
        ConfigError: a file cannot be read, or a secret cannot be found on this machine.
    """
    if arguments.pipelines:
        message = (
            f"--props describes the pipeline, so {arguments.pipelines[0]} is not needed; remove it "
            "(arguments of HoodieStreamer follow after --)"
        )
        raise InvalidConfig(message)
    with _report_bad_file(arguments):
        job = read_job(arguments.props, arguments.job, arguments.source_schema)
        arguments.redacted = build_job_redactor(job.values)
        loaded = load_pipeline_of_job(job, overrides)
        check_resolved(loaded.config)
    return loaded.config, loaded.warnings


def _check_is_no_job(arguments: argparse.Namespace) -> None:
    """Check the arguments of a run of pipeline files.

    Raises:
        InvalidConfig: arguments of HoodieStreamer are given.
    """
    if arguments.job or arguments.source_schema:
        given = "arguments after --" if arguments.job else "--source-schema"
        message = f"{given} describe a job of HoodieStreamer; name its property file with --props"
        raise InvalidConfig(message)


def check_resolved(config: PipelineConfig) -> None:
    """Check now that all secrets can be found, because some are needed after hours only.

    Raises:
        ConfigError: a secret cannot be found on this machine.
    """
    if problems := config.unresolved():
        raise ConfigError(problems)


def run_pipeline(
    arguments: argparse.Namespace, config: PipelineConfig, warnings: Sequence[str] = ()
) -> None:
    """Run one pipeline until it has caught up or is stopped.

    Args:
        arguments: the options of the output. Receives the loop, and what removes secrets.
        config: the pipeline.
        warnings: texts that are reported first.

    Raises:
        HudiError: the run failed permanently.
    """
    arguments.redacted = build_redactor(config)
    with (
        stop_on_signals() as signals,
        _output(arguments, config) as shown,
        monitor_run(config, shown) as monitor,
        capture_logs(lambda *warning: monitor.listener(WarningLogged(*warning))),
        _report_failures(monitor.listener, arguments, signals),
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
                return
        opened = pipeline.build(
            config,
            monitor.listener,
            paused=monitor.control.paused,
            is_snapshot_read=snapshot is not None,
        )
        _run_loop(arguments, config, opened, monitor, signals, snapshot)


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


def _run_several(arguments: argparse.Namespace, plan: JobPlan) -> None:
    is_json, redacted = arguments.log_format == "json", arguments.redacted
    with (
        stop_on_signals() as signals,
        job_output(arguments.events, redacted, is_json=is_json) as output,
        _report_failures(output(""), arguments, signals),
        open_job(plan, arguments.parallel_batches, output) as job,
    ):
        arguments.loop = job
        signals.watch(job.stop)
        try:
            job.run()
        finally:
            if not is_json:
                print_summary(job.outcomes, redacted)


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


@contextmanager
def _report_bad_file(arguments: argparse.Namespace) -> Iterator[None]:
    """Emit an event, without the name of a pipeline, if the pipeline file is not valid."""
    try:
        yield
    except Exception as error:
        is_json = arguments.log_format == "json"
        shown: Listener = JsonLines(sys.stderr, str).listener("") if is_json else _print_nothing
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
