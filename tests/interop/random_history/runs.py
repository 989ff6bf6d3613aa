"""Runs random histories from seeds."""

from __future__ import annotations

import random
from pathlib import Path

from lakemark.model.action import Action
from tests.interop.oracle import Oracle
from tests.interop.random_history import apache_acts, lakemark_acts
from tests.interop.random_history.heartbeats import heartbeats_decide
from tests.interop.random_history.history import History
from tests.interop.random_history.kinds import Kind, Process
from tests.interop.random_history.lakemark_acts import PIPELINES
from tests.interop.random_history.overlaps import upsert_at_the_same_time
from tests.tables import Row, commit

#: After so many acts, Apache Hudi reads the table, too.
_APACHE_READS_AFTER = 5


def run_history(oracle: Oracle, path: Path, seed: int, acts: int) -> History:
    """Run one history to its end, and return it.

    Raises:
        AssertionError: the rows or the metadata table are wrong; a note has the trace.
    """
    draw = random.Random(f"{seed} random history")
    history = History(oracle, path, Kind.draw(draw), draw)
    history.note(f"seed {seed}: {history.kind}")
    try:
        with heartbeats_decide(path):
            _run(history, acts)
    except BaseException as error:
        error.add_note("\n".join(history.trace))
        raise
    return history


def _run(history: History, acts: int) -> None:
    history.kind.create(history.path)
    _begin(history)
    weighted = [
        *lakemark_acts.acts_of(history.kind),
        *apache_acts.acts_of(history.kind),
        (upsert_at_the_same_time, 2),
    ]
    chosen, weights = zip(*weighted, strict=True)
    for number in range(acts):
        history.draw.choices(chosen, weights)[0](history)
        history.check()
        if number % _APACHE_READS_AFTER == 0:
            history.check_with_apache()
    _end(history)


def _begin(history: History) -> None:
    rows = history.some_rows("north") + history.some_rows("south")
    to = history.process().writer()
    commit(to, rows)
    history.model.rows = {row.id: (row.ts, row.v) for row in rows}
    history.check()


def _end(history: History) -> None:
    """Publish what is open, let a process finish and undo the rest, and check everything."""
    for name in PIPELINES:
        lakemark_acts.publish(history, name)
    history.check()
    history.check_past()
    history.note("end")
    history.bury()
    process = Process.start(history.kind, history.path, history.clock)
    process.writer().recover()
    table = process.table()
    for begun in process.opened.timeline.pending(Action.SAVEPOINT):
        table.delete_savepoint(begun.requested_at)  # it has no effect, and stays until then
    if history.kind.is_merge_on_read:
        table.compact()
    if not history.kind.has_buckets:
        table.cluster("v")
    table.clean(retain_commits=1)
    table.upsert(lakemark_acts.as_table([Row("a", history.ordering + 1, -1)]))
    history.model.rows = {**history.model.rows, "a": (history.ordering + 1, -1)}
    history.check()
    history.check_with_apache()
    pending = [i for i in history.opened().timeline.pending() if not i.action.is_table_service]
    assert not pending, pending
