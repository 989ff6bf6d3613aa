"""Commits of lakemark and of Apache Hudi that are written at the same time."""

from __future__ import annotations

import threading
from contextlib import suppress
from unittest.mock import patch

from lakemark.errors import Retriable, WriteConflict
from lakemark.model.action import COMMITS
from lakemark.timeline.locks.table_lock import SystemClock
from lakemark.transaction.conflicts import ClusteringPlanned
from tests.interop.oracle import OracleError
from tests.interop.random_history.history import CONFLICTS, History
from tests.interop.random_history.kinds import Process
from tests.interop.random_history.lakemark_acts import as_table
from tests.interop.random_history.model import upserted
from tests.tables import Row, commit
from tests.waiting import until


def upsert_at_the_same_time(history: History) -> None:
    """Let both upsert; lakemark begins while the instant of Apache Hudi is pending."""
    theirs = history.some_rows()
    ours = _drawn_beside(history, theirs)
    if not ours:
        return
    history.note(f"both upsert; Apache {_shown(theirs)}, lakemark {_shown(ours)}")
    errors: list[OracleError] = []
    before = {i.requested_at for i in history.opened().timeline.instants}

    def write_as_apache() -> None:
        try:
            history.oracle.write(history.path, as_table(theirs), history.kind.twin())
        except OracleError as error:
            errors.append(error)

    apache = threading.Thread(target=write_as_apache)
    apache.start()
    until(lambda: not apache.is_alive() or _has_begun(history, before))
    # A commit waits for an earlier one that is only requested; Apache Hudi may leave it so.
    with patch("lakemark.transaction.conflicts.is_fresh", lambda *_: apache.is_alive()):
        has_committed = _commit(history, ours)
    apache.join()
    for error in errors:
        history.note(f"  Apache: {str(error)[:300]}")
        if not any(reason in str(error) for reason in CONFLICTS):
            raise error
    committed = ([] if errors else theirs) + (ours if has_committed else [])
    history.model.rows = upserted(history.model.rows, committed)
    history.bury()


def _drawn_beside(history: History, theirs: list[Row]) -> list[Row]:
    """Draw rows; in a table without buckets, not of new keys that the other commit adds, too.

    Apache Hudi does not detect that another commit adds the same key (docs/concurrency.md).
    """
    added = {row.id for row in theirs} - history.model.rows.keys()
    rows, has_buckets = history.some_rows(), history.kind.has_buckets
    return [row for row in rows if has_buckets or row.id not in added]


def _has_begun(history: History, before: set[str]) -> bool:
    pending = history.opened().timeline.pending(*COMMITS)
    return any(instant.requested_at not in before for instant in pending)


def _commit(history: History, rows: list[Row]) -> bool:
    """Commit rows with the clock of this machine; return false after a conflict."""
    process = Process.start(history.kind, history.path, SystemClock())
    to = process.writer()
    try:
        commit(to, rows)
    except (WriteConflict, ClusteringPlanned) as conflict:
        assert not history.kind.non_blocking, conflict
        history.note(f"  lakemark conflicts: {str(conflict)[:200]}")
        with suppress(Retriable):
            to.abandon()
        return False
    finally:
        process.storage.die()
    return True


def _shown(rows: list[Row]) -> list[tuple[str, int]]:
    return [(row.id, row.ts) for row in rows]
