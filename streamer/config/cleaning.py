"""``cleaning``: how much of a table's past stays readable."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from streamer.config.section import Section
from table.services.cleaning_plan import CleaningPolicy, Retention

_AtLeastOne = Annotated[int, Field(ge=1)]


class CleaningConfig(Section):
    """Deletion of files that no query of the retained past reads, and no savepoint keeps."""

    enabled: bool = True
    """Whether this application cleans."""

    policy: Literal["keep_latest_commits", "keep_latest_by_hours", "keep_latest_file_versions"] = (
        "keep_latest_commits"
    )
    """What is counted: commits, hours, or the versions of each file."""

    commits_retained: _AtLeastOne = 10
    """The table stays readable as of so many commits."""

    hours_retained: _AtLeastOne = 24
    """The table stays readable as of the commits of so many hours."""

    file_versions_retained: _AtLeastOne = 3
    """So many versions of each file stay."""

    every_commits: _AtLeastOne = 1
    """Look for files to delete after so many commits since the last clean."""

    def cleaning_policy(self) -> CleaningPolicy | None:
        """The same for the table; None when it is not to be cleaned."""
        return self.policy_of_table() if self.enabled else None

    def policy_of_table(self) -> CleaningPolicy:
        """The same, whoever cleans."""
        return CleaningPolicy(
            Retention(self.policy.upper()),
            self.commits_retained,
            self.hours_retained,
            self.file_versions_retained,
            self.every_commits,
        )
