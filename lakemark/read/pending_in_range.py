"""Checks that a range of requested times contains no pending commit."""

from __future__ import annotations

from collections.abc import Iterable

from lakemark.errors import InvalidConfig
from lakemark.model.action import COMMITS
from lakemark.model.instant import Instant
from lakemark.read.instant_range import InstantRange
from lakemark.view.file_system_view import FileSystemView


def check_none_pending(
    view: FileSystemView, commits: Iterable[Instant], instant_range: InstantRange
) -> None:
    """Check that no commit before the end of a range is pending; clusterings may be pending.

    If such a commit completed later, the next range would miss its rows.

    Args:
        view: the table's latest state.
        commits: the completed commits of the range.
        instant_range: range of requested times; a range without an end ends at the last commit.

    Raises:
        InvalidConfig: a commit is pending.
    """
    end = instant_range.end or max((commit.requested_at for commit in commits), default="")
    clusterings = set(view.clusterings.values())
    for pending in view.timeline.pending(*COMMITS):
        if pending.requested_at not in clusterings and pending.requested_at <= end:
            message = (
                f"{pending} is pending, and the range goes to {end}, so the next range would miss "
                "its rows; wait until it completes, or end the range before it"
            )
            raise InvalidConfig(message)
