"""``lakemark validate``: checks a pipeline file and prints all its settings, with defaults."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from streamer.config.column_roles import expression_problems, timestamp_partition_problems
from streamer.config.errors import ConfigError
from streamer.config.load import load
from streamer.config.pipeline import PipelineConfig
from streamer.config.render import render_yaml
from streamer.config.secrets import build_redactor
from streamer.start_checks import check_locally, remote_checks

_CHECKED_WITH_SPARK = (
    "Java, Spark, its Kafka connector and the settings of spark.conf",
    "the offsets to start at",
    "the columns and the file groups, if the table already exists",
)


def execute(arguments: argparse.Namespace) -> int:
    """Print the complete pipeline with masked secrets, and list the checks.

    Raises:
        ConfigError: the file is not valid, or a secret cannot be found on this machine.
        InvalidConfig: the merger cannot be imported, or is not a merger.
    """
    config = load(arguments.pipeline, arguments.overrides)
    arguments.redacted = build_redactor(config)
    problems = config.unresolved()
    if problems:
        raise ConfigError(problems)
    checked = check_locally(config)
    sys.stdout.write(render_yaml(config))
    sys.stderr.write(arguments.redacted("".join(_summary(config, checked))))
    return 0


def _summary(config: PipelineConfig, checked: list[str]) -> Iterator[str]:
    """Yield the checks that were made, then the checks that only a run makes."""
    yield "checked:\n"
    yield from (f"  {one}\n" for one in checked)
    yield "not checked here; lakemark run checks before Spark starts:\n"
    yield from (f"  {one}\n" for one in remote_checks(config))
    columns = config.decode.declared()
    problems = list(expression_problems(config.table, columns))
    if columns is not None:
        problems += timestamp_partition_problems(columns, config.table)
    for problem in problems:
        yield f"  {problem}; the run is refused unless the table exists\n"
    yield "not checked here; lakemark run checks once Spark runs:\n"
    yield from (f"  {one}\n" for one in _CHECKED_WITH_SPARK)
