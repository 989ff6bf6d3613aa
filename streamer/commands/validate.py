"""``lakemark validate``: checks pipeline files and prints all their settings, with defaults."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from lakemark.storage.trial_folders import TrialFolders
from streamer.checks.doctor import doctor_checks, local_checks
from streamer.checks.start import check_locally
from streamer.config.column_roles import new_column_problems, partition_problems
from streamer.config.errors import ConfigError, Problem
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.config.load import load, load_tree
from streamer.config.pipeline import PipelineConfig
from streamer.config.render import render_yaml
from streamer.config.routed_tree import chosen_value, has_route
from streamer.config.secrets import build_redactor
from streamer.config.snapshot import snapshot_warnings
from streamer.config.topics import has_several_topics
from streamer.job.files import find_files
from streamer.job.plan import TopicTemplate, plan_job
from streamer.routing.template import RouteTemplate

_CHECKED_WITH_SPARK = (
    "whether Spark starts with the settings of spark.conf",
    "whether records of the topic become rows",
)


def execute(arguments: argparse.Namespace) -> int:
    """Print the complete pipelines with masked secrets, and list the checks.

    Raises:
        ConfigError: a file is not valid, the files cannot run in one process, or a secret cannot be
            found on this machine.
        InvalidConfig: the merger cannot be imported, or is not a merger.
    """
    files = find_files(arguments.pipelines)
    if len(files) == 1 and not has_several_topics(load_tree(files[0], arguments.overrides)):
        config = _load(files[0], arguments.overrides)
        arguments.redacted = build_redactor(config)
        _show(config, arguments)
        return 0
    plan = plan_job(files, arguments.overrides)
    arguments.redacted = plan.redactor()
    named = [(config.name, config) for config in plan.configs]
    named += [(_title(one), one.sample) for one in plan.templates]
    for title, config in named:
        sys.stdout.write(f"--- # {title}\n")
        sys.stderr.write(f"{title}\n")
        _show(config, arguments)
    return 0


def _title(template: TopicTemplate) -> str:
    pattern, topic = template.pattern, template.sample.kafka.topic
    return f"each topic that matches {pattern!r}; here with the topic {topic!r}, as an example"


def _show(config: PipelineConfig, arguments: argparse.Namespace) -> None:
    problems = config.unresolved()
    if problems:
        raise ConfigError(problems)
    checked = check_locally(config)
    if config.snapshot is not None:
        check_locally(config.of_snapshot())
        checked.append("the records of the snapshot, with the same settings")
    sys.stdout.write(render_yaml(config))
    sys.stderr.write(arguments.redacted("".join(_summary(config, checked))))


def _load(file: str, overrides: Sequence[str]) -> PipelineConfig:
    """Load the pipeline; of a file with a route, that of all tables, unless one was chosen."""
    tree = load_tree(file, overrides)
    if has_route(tree) and chosen_value(tree) is None:
        template = RouteTemplate.of(tree)
        template.route_of_records()
        return template.shown
    return load(file, overrides)


def _summary(config: PipelineConfig, checked: list[str]) -> Iterator[str]:
    """Yield the checks that were made, those that other commands make, and warnings.

    The warnings come last, where they are seen on a terminal.
    """
    yield "checked:\n"
    yield from (f"  {one}\n" for one in checked)
    of_one_table = " --set route.value=NAME" if config.route is not None else ""
    yield f"not checked here; lakemark doctor{of_one_table} checks:\n"
    local = {one.name for one in local_checks(config)}
    yield from (
        f"  {one.name}\n" for one in doctor_checks(config, TrialFolders()) if one.name not in local
    )
    if isinstance(config.source, KafkaSourceConfig):  # other sources need no Spark
        command = "preview" if config.route is None else "run"  # a route has no preview
        yield f"not checked here; lakemark {command} starts Spark and shows:\n"
        yield from (f"  {one}\n" for one in _CHECKED_WITH_SPARK)
    if config.snapshot is not None:
        yield "a run reads first the snapshot, unless the table records that it was read:\n"
        yield f"  {config.snapshot.path}\n"
        for text in snapshot_warnings(config.kafka, config.table):
            yield f"warning: {text}\n"
    problems = _problems_of_a_new_table(config)
    if problems:
        yield "warning: the run is refused unless the table exists:\n"
        yield from (f"  {one}\n" for one in problems)


def _problems_of_a_new_table(config: PipelineConfig) -> list[Problem]:
    """Return why a run would not create the table."""
    columns = config.row_columns()
    problems = list(partition_problems(config.table, columns))
    if columns is not None:
        problems += new_column_problems(columns, config.table)
    return problems
