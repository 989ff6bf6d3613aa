"""The results of table services in a few words."""

from __future__ import annotations

from lakemark.operations.clean import Cleaned
from lakemark.services.archival import Archived
from streamer.wording import counted


def clean_summary(cleaned: Cleaned) -> str:
    """Return what a clean has deleted."""
    plan = cleaned.plan
    kept = f", readable as of {plan.earliest_retained}" if plan.earliest_retained else ""
    return f"{cleaned.instant.requested_at}: {counted(len(plan.paths), 'file')} deleted{kept}"


def archive_summary(archived: Archived) -> str:
    """Return what an archival has moved."""
    files = (
        f", {counted(len(archived.leftovers), 'file')} of dead writers deleted"
        if archived.leftovers
        else ""
    )
    start = archived.timeline.start
    return f"{counted(len(archived.instants), 'instant')}{files}, active since {start}"
