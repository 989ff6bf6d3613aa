"""The settings of ``cleaning`` and ``archival`` in a pipeline file become policies."""

from __future__ import annotations

import pytest

from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from streamer.config.archival import ArchivalConfig
from streamer.config.cleaning import CleaningConfig
from tests.unit.streamer.config.test_cross_checks import reported


def test_apaches_defaults_are_the_defaults() -> None:
    assert CleaningConfig().cleaning_policy() == CleaningPolicy()
    assert ArchivalConfig().archival_policy(5) == ArchivalPolicy()
    assert (CleaningPolicy().commits, CleaningPolicy().every_commits) == (10, 1)
    assert (ArchivalPolicy().min_commits, ArchivalPolicy().max_commits) == (20, 30)


def test_disabled_service_has_no_policy() -> None:
    assert CleaningConfig(enabled=False).cleaning_policy() is None
    assert ArchivalConfig(enabled=False).archival_policy(5) is None


def test_settings_become_the_policy() -> None:
    cleaning = CleaningConfig(policy="keep_latest_by_hours", hours_retained=7, every_commits=3)
    assert cleaning.cleaning_policy() == CleaningPolicy(Retention.HOURS, hours=7, every_commits=3)
    archival = ArchivalConfig(min_commits=40, max_commits=50)
    assert archival.archival_policy(8) == ArchivalPolicy(40, 50, 8)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["archival.max_commits=20"], "archival.max_commits: 20 is not more than min_commits, 20"),
        (
            ["archival.min_commits=10"],
            "archival.min_commits: 10 is not more than cleaning.commits_retained, 10",
        ),
        (
            ["cleaning.commits_retained=25"],
            "archival.min_commits: 20 is not more than cleaning.commits_retained, 25",
        ),
    ],
)
def test_contradicting_settings_are_refused(settings: list[str], problem: str) -> None:
    assert any(line.strip().lstrip("- ").startswith(problem) for line in reported(*settings))


@pytest.mark.parametrize(
    "settings",
    [
        ["cleaning.commits_retained=25", "archival.enabled=false"],
        ["cleaning.commits_retained=25", "cleaning.enabled=false"],
        ["cleaning.commits_retained=25", "cleaning.policy=keep_latest_file_versions"],
        ["cleaning.commits_retained=25", "archival.min_commits=26"],
    ],
)
def test_valid_retention_settings_are_accepted(settings: list[str]) -> None:
    assert reported(*settings) == []
