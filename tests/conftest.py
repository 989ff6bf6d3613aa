"""Registers the shared fixtures, and sets what applies to all tests."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from lakemark.transaction.multi_writer import MultiWriter
from tests.collection import check_marks_are_named, may_hold_wanted, unsampled
from tests.depth import DEPTH, SEED, examples
from tests.immediate_failures import ImmediateFailures

pytest_plugins = [
    "tests.fixtures.emulators",
    "tests.fixtures.hive_metastore",
    "tests.fixtures.kafka",
    "tests.fixtures.oracle",
    "tests.fixtures.quick_s3",
    "tests.fixtures.s3",
    "tests.fixtures.schema_registry",
    "tests.fixtures.secured_kafka",
    "tests.fixtures.spark",
    "tests.fixtures.storage",
    "tests.fixtures.webhook",
    "tests.fixtures.zookeeper",
    "tests.golden.shared_tables",
]

# The golden tables are in local time, and their writers were in UTC.
os.environ["TZ"] = "UTC"
time.tzset()

# A busy machine may stop for seconds anywhere: how long an example takes proves nothing.
settings.register_profile(
    "lakemark",
    settings.get_profile("default"),
    deadline=None,
    derandomize=False,
    max_examples=examples(100),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("lakemark")


def _not_forced(fd: object) -> None:
    """Do not force files to the disk, because the files of the tests need not outlive them."""


# Forcing files to the disk made the tests of local tables twice as slow. Which of them are forced,
# and when, ``tests/storages/forgetful_disk.py`` observes here.
os.fsync = _not_forced

_let_clocks_pass = MultiWriter.let_clocks_pass


def _let_one_clock_pass(self: MultiWriter) -> None:
    """Wait a millisecond, unless the test has chosen how far the clocks differ."""
    is_chosen = self.clock_skew_ms != MultiWriter().clock_skew_ms
    _let_clocks_pass(self if is_chosen else replace(self, clock_skew_ms=1))


# All writers of a test have the clock of this machine. A commit to a table that writers share would
# wait for 0.2 s at its request and at its completion, and another commit needs no more than that.
MultiWriter.let_clocks_pass = _let_one_clock_pass  # type: ignore[method-assign]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let Hypothesis use the seed of the run, unless the command line names another seed.

    Also print each failure when it happens.
    """
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(SEED)
    config.pluginmanager.register(ImmediateFailures(config))


def pytest_report_header() -> str:
    """Print the variables with which a failure can be repeated."""
    return f"to repeat: LAKEMARK_SEED={SEED} LAKEMARK_DEPTH={DEPTH}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files from which ``-m`` selects no test."""
    if collection_path.suffix != ".py" or may_hold_wanted(collection_path, config.option.markexpr):
        return None
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the depth does not select, and start the tests that may last longest first.

    So no worker begins a long test at the end. Tests with a metastore come next, beside those of
    ``tests/contract``: each worker that ran one of them would start a metastore, in ten seconds.
    """
    check_marks_are_named(items)
    if left_out := unsampled(items):
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: (_longest_s(item), _has_metastore(item)), reverse=True)


def _longest_s(item: pytest.Item) -> float:
    limit = item.get_closest_marker("timeout")
    return 0.0 if limit is None else float(limit.args[0])


def _has_metastore(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "hive_metastore" in item.fixturenames
