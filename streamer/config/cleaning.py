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
    """How many of the newest commits time travel can reach, with ``keep_latest_commits``."""

    hours_retained: _AtLeastOne = 24
    """How many hours back time travel can reach, with ``keep_latest_by_hours``."""

    file_versions_retained: _AtLeastOne = 3
    """How many of the latest versions of each file group are kept, with
    ``keep_latest_file_versions``."""

    every_commits: _AtLeastOne = 1
    """Clean when this number of commits have been made since the last clean."""

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
