"""Cleans an open table: deletes files that no query within the retention reads."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.model.action import Action
from lakemark.model.clean_plan import CleanPlan
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable
from lakemark.services import cleaning
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.transaction.rollback_checks import check_no_restore


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A completed clean.

    Attributes:
        instant: the instant of the clean.
        plan: the plan with the files that the clean deleted.
    """

    instant: Instant
    plan: CleanPlan


def clean(table: OpenTable, policy: CleaningPolicy) -> list[Cleaned]:
    """Execute pending cleans of any writer, then plan and execute a clean if files have expired.

    The cached timeline decides whether files have expired. If so, the plan is made from a newly
    loaded timeline.

    Raises:
        Refused: a restore is pending.
    """
    check_no_restore(table.timeline)
    pending = [
        i for i in table.timeline.pending(Action.CLEAN) if cleaning.is_free(table.context, i)
    ]
    done = [one for one in (_finish(table, i) for i in pending) if one is not None]
    if plan_clean(table, policy) is None:
        return done
    requested = request_clean(table, policy)
    if requested is not None:
        done.append(_execute(table, *requested))
    return done


def plan_clean(table: OpenTable, policy: CleaningPolicy) -> CleanPlan | None:
    """Return the plan of a clean as of the last refresh; None if no files have expired."""
    return cleaning.propose(table.store, table.timeline, table.view, policy)


def request_clean(table: OpenTable, policy: CleaningPolicy) -> tuple[Instant, CleanPlan] | None:
    """Plan a clean and write the plan to the timeline; see ``cleaning.request``."""
    return cleaning.request(table.context, table.view_at, policy)


def _execute(table: OpenTable, pending: Instant, plan: CleanPlan) -> Cleaned:
    instant, timeline = cleaning.execute(table.context, pending, plan)
    table.snapshot.carry_clean(instant, plan, timeline)
    return Cleaned(instant, plan)


def _finish(table: OpenTable, pending: Instant) -> Cleaned | None:
    """Execute a pending clean; return None if the clean was removed or has completed."""
    plan = cleaning.claim(table.context, pending)
    if plan is not None:
        return _execute(table, pending, plan)
    table.refresh()
    return None
