"""``lakemark run``: runs the pipelines that files describe, in one process."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from lakemark.errors import InvalidConfig
from streamer.commands.pipeline_run import run_pipeline
from streamer.commands.run_failures import report_bad_file, report_failures
from streamer.config.errors import ConfigError, Problem
from streamer.config.load import check_resolved, load_tree, validated
from streamer.config.pipeline import PipelineConfig
from streamer.config.routed_tree import has_route
from streamer.config.secrets import build_redactor
from streamer.config.topics import has_several_topics
from streamer.events import Listener
from streamer.job.files import find_files
from streamer.job.job import open_job
from streamer.job.outcome import Outcome
from streamer.job.output import job_output, print_summary
from streamer.job.plan import plan_job
from streamer.migration.run_of_job import load_pipeline_of_job, read_job
from streamer.migration.secrets import build_job_redactor
from streamer.routing.run import open_routed
from streamer.routing.template import RouteTemplate
from streamer.stopping import stop_on_signals

_LOG = logging.getLogger(__name__)


def execute(arguments: argparse.Namespace) -> int:
    """Run until caught up or stopped. Ctrl-C and SIGTERM end the run normally, with exit code 0.

    Raises:
        ConfigError: a pipeline file is not valid, or a secret cannot be found on this machine.
        CannotListen: another process uses the port of the metrics endpoint.
        InvalidConfig: a pipeline file and a job are named, or the job cannot become a pipeline that
            writes the same rows.
        PipelinesFailed: some of several pipelines failed permanently.
        TablesSetAside: some tables of a pipeline with a route are set aside.
        HudiError: the run failed permanently.
    """
    overrides = [*arguments.overrides, *_overrides(arguments)]
    if arguments.props is not None:
        of_job, warnings = _load_job(arguments, overrides)
        run_pipeline(arguments, of_job, [*warnings, *_ignored(arguments)])
        return 0
    _check_is_no_job(arguments)
    with report_bad_file(arguments):
        files = find_files(arguments.pipelines)
        config = _load_one(files, arguments.pipelines, overrides)
        plan = None if config else plan_job(files, overrides)
    if isinstance(config, RouteTemplate):
        arguments.redacted = build_redactor(config.sample)
        _run_tables(arguments, partial(open_routed, config), _ignored(arguments))
    elif config is not None:
        run_pipeline(arguments, config, _ignored(arguments))
    elif plan is not None:
        arguments.redacted = plan.redactor()
        _run_tables(arguments, partial(open_job, plan, arguments.parallel_batches))
    return 0


class _Run(Protocol):
    """A run that writes several tables."""

    @property
    def outcomes(self) -> list[Outcome]:
        """What became of each table."""
        ...

    def stop(self) -> bool:
        """Ask the run to stop; see ``StreamLoop.stop``."""
        ...

    def run(self) -> None:
        """Run until the end."""
        ...


def _ignored(arguments: argparse.Namespace) -> Sequence[str]:
    """Return a warning for the option that one pipeline does not use."""
    if arguments.parallel_batches is None:
        return ()
    return ("--parallel-batches has no effect, because there is only one pipeline",)


def _load_one(
    files: Sequence[str], named: Sequence[str], overrides: Sequence[str]
) -> PipelineConfig | RouteTemplate | None:
    """Return the pipeline if the user named one file, and it describes one pipeline.

    A pipeline with a route is one pipeline, which has many tables.

    Raises:
        ConfigError: the file is not valid, or a secret cannot be found on this machine.
    """
    if [*files] != [*named[:1]]:
        return None
    tree = load_tree(files[0], overrides)
    if has_several_topics(tree):
        return None
    if has_route(tree):
        template = RouteTemplate.of(tree)
        _check_runs_whole(template)
        check_resolved(template.sample)
        return template
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
    with report_bad_file(arguments):
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


def _check_runs_whole(template: RouteTemplate) -> None:
    """Check that a run of a routed pipeline is not one of a single table.

    Raises:
        ConfigError: a table was chosen.
    """
    if template.route.value is not None:
        text = "is for commands that work on one table; a run writes all of them, so remove it"
        raise ConfigError([Problem("route.value", text)])


def _run_tables(
    arguments: argparse.Namespace,
    open_run: Callable[[Callable[[str], Listener]], AbstractContextManager[_Run]],
    warnings: Sequence[str] = (),
) -> None:
    """Run what writes several tables, and print what became of each of them.

    Args:
        arguments: the arguments of the command.
        open_run: opens the run, given the function that returns the listener of a table by name.
        warnings: warnings about the arguments.
    """
    is_json, redacted = arguments.log_format == "json", arguments.redacted
    with (
        stop_on_signals() as signals,
        job_output(arguments.events, redacted, is_json=is_json) as output,
        report_failures(output(""), arguments, signals),
        open_run(output) as run,
    ):
        for warning in warnings:
            _LOG.warning("%s", warning)
        arguments.loop = run
        signals.watch(run.stop)
        try:
            run.run()
        finally:
            if not is_json:
                print_summary(run.outcomes, redacted)


def _overrides(arguments: argparse.Namespace) -> Sequence[str]:
    chosen = {
        "run.mode=once": arguments.once,
        "run.mode=continuous": arguments.continuous,
        "table.drop_metadata_table=true": arguments.drop_metadata_table,
    }
    return [override for override, wanted in chosen.items() if wanted]
