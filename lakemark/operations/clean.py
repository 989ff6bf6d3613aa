"""Clean an open table: delete files that no query within the retention reads."""

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
    """One clean that was completed.

    Attributes:
        instant: the clean.
        plan: what it deleted.
    """

    instant: Instant
    plan: CleanPlan


def clean(table: OpenTable, policy: CleaningPolicy) -> list[Cleaned]:
    """Execute pending cleans of any writer, then plan and execute one if files have expired.

    Decides from the timeline as the last commit left it; the plan is made from a new one.

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
    """What a clean would delete as of the table's last refresh; None if nothing has expired."""
    return cleaning.propose(table.store, table.timeline, table.view, policy)


def request_clean(table: OpenTable, policy: CleaningPolicy) -> tuple[Instant, CleanPlan] | None:
    """Write a plan to the timeline; errors as for ``cleaning.request``."""
    return cleaning.request(table.context, table.view_at, policy)


def _execute(table: OpenTable, pending: Instant, plan: CleanPlan) -> Cleaned:
    instant, timeline = cleaning.execute(table.context, pending, plan)
    table.snapshot.carry_clean(instant, plan, timeline)
    return Cleaned(instant, plan)


def _finish(table: OpenTable, pending: Instant) -> Cleaned | None:
    """Execute a pending clean; None if it was removed instead, or has completed."""
    plan = cleaning.claim(table.context, pending)
    if plan is not None:
        return _execute(table, pending, plan)
    table.refresh()
    return None
