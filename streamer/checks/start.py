"""The checks before Spark starts, so that a wrong setting is reported within seconds.

The checks connect to the broker, the stores and the schema registry that the pipeline file names.
"""

from __future__ import annotations

import logging
from typing import Final

from streamer.checks import tables
from streamer.checks.check import Check, NoAnswer, NotChecked, Outcome, Status, run_checks
from streamer.checks.registry import registry_check
from streamer.checks.source import source_check
from streamer.config.pipeline import PipelineConfig
from streamer.table_setup import table_spec

_LOG = logging.getLogger(__name__)

#: Seconds for which a start waits for all checks together.
WITHIN_S: Final = 10.0


def check_start(config: PipelineConfig, *, tries_stores: bool = True) -> None:
    """Check everything that the pipeline needs and that can be checked without Spark.

    A check that does not finish in time is only reported, because the store or the network may just
    be slow. The run makes the same check again later, with more time.

    Args:
        config: the settings of the pipeline.
        tries_stores: whether to write to the stores of the tables, to check their guarantees.

    Raises:
        HudiError: the topic, a table, the merger or the schema registry is not suitable or does
            not answer. The first failure is raised.
    """
    check_locally(config)
    for outcome in run_checks(remote_checks(config, tries_stores=tries_stores), WITHIN_S):
        _report(outcome)


def check_locally(config: PipelineConfig) -> list[str]:
    """Make the checks that need no connection; return what was checked, one text for each check.

    Raises:
        ConfigError: a secret cannot be found.
        InvalidConfig: the merger cannot be imported, or is not a merger.
    """
    config.table.location()  # finds the secrets
    table_spec(config)
    checked = ["the settings, one by one and together", "the secrets that they name"]
    if config.decode.declared() is not None:
        checked.append("the declared columns")
    if config.transform_chain() is not None:
        checked.append("the steps of transform, with their columns")
    if config.expect and config.row_columns() is not None:
        checked.append("the rules and checks of expect")
    if config.table.merger:
        checked.append(f"the merger {config.table.merger}, which was imported")
    return checked


def remote_checks(config: PipelineConfig, *, tries_stores: bool = True) -> list[Check]:
    """Return the checks that need a connection; see ``check_start``."""
    registry = registry_check(config)
    checks = [
        source_check(config),
        *tables.start_checks(config, tries_stores=tries_stores),
    ]
    return checks if registry is None else [*checks, registry]


def _report(outcome: Outcome) -> None:
    """Log the outcome of a check that could not be made; raise the error of a failed check."""
    name, failure = outcome.check.name, outcome.failure
    if isinstance(failure, NoAnswer):
        _LOG.warning("%s: the run checks it again once Spark runs: %s", name, failure)
    elif isinstance(failure, NotChecked):
        _LOG.warning("%s is not checked before Spark starts: %s", name, failure)
    elif failure is not None:
        raise failure
    elif outcome.status is Status.WARNING:
        _LOG.warning("%s: %s", name, outcome.text)
