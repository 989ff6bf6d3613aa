"""``cleaning``: how much of a table's history queries can read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from streamer.config.section import Section

_AtLeastOne = Annotated[int, Field(ge=1)]


class CleaningConfig(Section):
    """Cleaning deletes old file versions that no query of the retained history needs.

    Files that a savepoint refers to are kept.
    """

    enabled: bool = True
    """Whether this pipeline cleans the table."""

    policy: Literal["keep_latest_commits", "keep_latest_by_hours", "keep_latest_file_versions"] = (
        "keep_latest_commits"
    )
    """Whether the retained history is counted in commits, in hours, or in versions of each file
    group."""

    commits_retained: _AtLeastOne = 10
    """With ``keep_latest_commits``: time travel can reach this number of the newest commits."""

    hours_retained: _AtLeastOne = 24
    """With ``keep_latest_by_hours``: time travel can reach this number of hours back."""

    file_versions_retained: _AtLeastOne = 3
    """With ``keep_latest_file_versions``: this number of the latest versions of each file group are
    kept."""

    every_commits: _AtLeastOne = 1
    """Clean after this number of commits since the last clean."""

    def cleaning_policy(self) -> CleaningPolicy | None:
        """Return the cleaning policy; None if this pipeline does not clean."""
        return self.policy_of_table() if self.enabled else None

    def policy_of_table(self) -> CleaningPolicy:
        """Return the cleaning policy of the table, even if this pipeline does not clean."""
        return CleaningPolicy(
            Retention(self.policy.upper()),
            self.commits_retained,
            self.hours_retained,
            self.file_versions_retained,
            self.every_commits,
        )
