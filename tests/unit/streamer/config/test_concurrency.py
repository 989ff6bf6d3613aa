"""The settings of ``concurrency`` in a pipeline file become the policy of the writer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakemark.timeline.locks.open_lock import LockProviderName
from lakemark.transaction.heartbeat import HeartbeatPolicy
from lakemark.transaction.multi_writer import MultiWriter
from streamer.config.concurrency import ConcurrencyConfig, LockConfig
from streamer.config.errors import ConfigError
from streamer.config.masking import sounds_secret
from streamer.table_setup import coordination_of
from tests.unit.streamer.config.test_cross_checks import reported

ROOT = Path(__file__).parents[4]


def test_a_pipeline_is_the_only_writer_unless_it_says_otherwise() -> None:
    assert ConcurrencyConfig().multi_writer() is None
    assert ConcurrencyConfig().lock.provider == LockProviderName.STORAGE


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
        early_conflict_detection=True,
        lock=LockConfig(provider="file_system"),
    )
    assert config.multi_writer() == MultiWriter(HeartbeatPolicy(5.0, 3), 0, True)
    assert config.lock.provider == LockProviderName.FILE_SYSTEM


def test_only_the_table_of_the_rows_has_a_non_blocking_writer() -> None:
    """The dead-letter table has no ordering columns."""
    config = ConcurrencyConfig(mode="non_blocking", clock_skew_ms=5)
    assert config.multi_writer() == MultiWriter(clock_skew_ms=5, non_blocking=True)
    assert config.of_dead_letters().multi_writer() == MultiWriter(clock_skew_ms=5)
    alone = ConcurrencyConfig()
    assert alone.of_dead_letters() is alone


#: Settings that contradict ``non_blocking``, and what the problem names.
CONTRADICTIONS = {
    "table.type=copy_on_write": "table.type: copy_on_write cannot",
    "table.version=6": "table.version: 6 cannot",
    "table.operation=insert": "table.operation: insert cannot",
    "table.partition_change=move": "table.partition_change: move cannot",
    "table.index=consistent_hashing": "table.index: consistent_hashing cannot",
    "table.cdc=data_before": "table.cdc: data_before cannot",
    "table.merge_mode=commit_time": "table.merge_mode: commit_time cannot",
    "table.ordering=[]": "table.ordering: is needed with",
    "table.partial_update=ignore_defaults": "table.partial_update: ignore_defaults cannot",
    "partition_lifetime.days=30": "partition_lifetime.days: cannot be combined with",
}


@pytest.mark.parametrize("setting", CONTRADICTIONS)
def test_setting_that_contradicts_non_blocking_writers_is_refused(setting: str) -> None:
    shared = ("concurrency.mode=non_blocking", "table.partition_by=at.day", "table.ordering=ts")
    lines = [line.strip().lstrip("- ") for line in reported(*shared, setting)]
    assert any(line.startswith(CONTRADICTIONS[setting]) for line in lines), lines


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            ["concurrency.mode=non_blocking", "concurrency.lock.provider=in_process"],
            "concurrency.lock.provider: in_process does not exclude other",
        ),
        (
            ["concurrency.mode=multi_writer", "concurrency.lock.provider=in_process"],
            "concurrency.lock.provider: in_process does not exclude other",
        ),
        (
            ["table.path=s3://lake/orders", "concurrency.lock.provider=file_system"],
            "concurrency.lock.provider: file_system works only on a local",
        ),
        (
            ["concurrency.early_conflict_detection=true"],
            "concurrency.early_conflict_detection: commits conflict only",
        ),
        (
            ["concurrency.mode=non_blocking", "concurrency.early_conflict_detection=true"],
            "concurrency.early_conflict_detection: non-blocking commits",
        ),
        (
            ["concurrency.lock.provider=storge"],
            "concurrency.lock.provider: 'storge': expected one of storage, file_system",
        ),
        (
            ["concurrency.mode=multi_writer", "concurrency.clock_skew_ms=200000"],
            "concurrency.clock_skew_ms: ",
        ),
    ],
)
def test_unusable_lock_or_clock_skew_is_refused(settings: list[str], problem: str) -> None:
    assert any(line.strip().lstrip("- ").startswith(problem) for line in reported(*settings))


def test_options_of_the_lock_name_the_lock_of_the_pipelines_table_only() -> None:
    options = {"hosts": "zk:2181", "base_path": "/hudi", "lock_key": {"env": "LOCK_KEY"}}
    concurrency = ConcurrencyConfig.model_validate(
        {"lock": {"provider": "zookeeper", "options": options}}
    )
    with pytest.raises(ConfigError, match=r"concurrency\.lock\.options\.lock_key: .*LOCK_KEY"):
        coordination_of(concurrency)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("LOCK_KEY", "orders")
        of_rows = coordination_of(concurrency)
        of_letters = coordination_of(concurrency, of_letters=True)
    assert of_rows.lock_options == {**options, "lock_key": "orders"}
    assert of_letters.lock_options == {"hosts": "zk:2181"}


def test_documented_options_of_locks_are_not_secret() -> None:
    """They name a lock; if ``lock_key`` was secret, its text would be masked in all output."""
    page = (ROOT / "docs" / "concurrency.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(hoodie\.write\.lock\.\S+)`", page, re.MULTILINE)
    names = {name for row in rows for name in row}
    assert {"lock_key", "partition_key", "hoodie.write.lock.zookeeper.lock_key"} <= names
    assert not any(map(sounds_secret, names))
    assert sounds_secret("unlock_key")
