"""``archival``: how many commits a table's active timeline keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from lakemark.services.archival_plan import ArchivalPolicy
from streamer.config.cleaning import CleaningConfig
from streamer.config.errors import Problem
from streamer.config.section import Section


class ArchivalConfig(Section):
    """Archival moves old commits from the active timeline, which readers list, to an archive."""

    enabled: bool = True
    """Whether this pipeline archives commits."""

    min_commits: Annotated[int, Field(ge=1)] = 20
    """How many of the latest commits stay on the active timeline when commits are archived."""

    max_commits: Annotated[int, Field(ge=2)] = 30
    """Archive when more than this number of commits are on the active timeline."""

    files_to_merge: Annotated[int, Field(ge=2)] = 10
    """Merge the files of the archive when there are this many of similar size, in table version 8
    and later (``hoodie.timeline.compaction.batch.size``)."""

    def archival_policy(self, delta_commits: int | None) -> ArchivalPolicy | None:
        """Return the archival policy; None if this pipeline does not archive.

        Args:
            delta_commits: the number of delta commits after which the table is compacted; None if
                no number is set.
        """
        if not self.enabled:
            return None
        return ArchivalPolicy(
            self.min_commits, self.max_commits, delta_commits, self.files_to_merge
        )


def archival_problems(cleaning: CleaningConfig, archival: ArchivalConfig) -> Iterator[Problem]:
    """Yield problems of the archival settings, alone and together with the cleaning settings."""
    if not archival.enabled:
        return
    if archival.max_commits <= archival.min_commits:
        text = f"{archival.max_commits} is not more than min_commits, {archival.min_commits}"
        yield Problem("archival.max_commits", text)
    counts_commits = cleaning.enabled and cleaning.policy == "keep_latest_commits"
    if counts_commits and archival.min_commits <= cleaning.commits_retained:
        text = (
            f"{archival.min_commits} is not more than cleaning.commits_retained, "
            f"{cleaning.commits_retained}, so commits that queries can read would be archived; "
            "raise it, or retain fewer commits"
        )
        yield Problem("archival.min_commits", text)
