"""The settings of ``concurrency`` in a pipeline file become the policy of the writer."""

from __future__ import annotations

import pytest

from lakemark.timeline.locks.open_lock import LockProviderName
from lakemark.transaction.heartbeat import HeartbeatPolicy
from lakemark.transaction.multi_writer import MultiWriter
from streamer.config.concurrency import ConcurrencyConfig, LockConfig
from tests.unit.streamer.config.test_cross_checks import reported


def test_a_pipeline_is_the_only_writer_unless_it_says_otherwise() -> None:
    assert ConcurrencyConfig().multi_writer() is None
    assert ConcurrencyConfig().provider() is LockProviderName.STORAGE


def test_apaches_defaults_are_the_defaults_of_several() -> None:
    assert ConcurrencyConfig(mode="multi_writer").multi_writer() == MultiWriter()
    assert MultiWriter().heartbeats == HeartbeatPolicy(60.0, 2)
    assert MultiWriter().heartbeats.expires_after_s == 120
    assert MultiWriter().clock_skew_ms == 200


def test_settings_become_the_policy() -> None:
    config = ConcurrencyConfig(
        mode="multi_writer",
        heartbeat_interval_s=5.0,
        tolerable_misses=3,
        clock_skew_ms=0,
        lock=LockConfig(provider="file_system"),
    )
    assert config.multi_writer() == MultiWriter(HeartbeatPolicy(5.0, 3), 0)
    assert config.provider() is LockProviderName.FILE_SYSTEM


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            ["concurrency.mode=multi_writer", "concurrency.lock.provider=in_process"],
            "concurrency.lock.provider: in_process does not exclude other",
        ),
        (
            ["table.path=s3://lake/orders", "concurrency.lock.provider=file_system"],
            "concurrency.lock.provider: file_system works only on a local",
        ),
        (
            ["concurrency.mode=multi_writer", "concurrency.clock_skew_ms=200000"],
            "concurrency.clock_skew_ms: ",
        ),
    ],
)
def test_unusable_lock_or_clock_skew_is_refused(settings: list[str], problem: str) -> None:
    assert any(line.strip().lstrip("- ").startswith(problem) for line in reported(*settings))
