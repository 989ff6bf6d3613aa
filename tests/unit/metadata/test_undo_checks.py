"""Whether the metadata table may contain a commit that is undone."""

from __future__ import annotations

import pytest

from lakemark.metadata.undo_checks import was_built_since
from lakemark.metadata.valid_instants import initial
from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline

SECOND = "20260303120000"
COMMIT = f"{SECOND}500"


def built(requested_at: str, completed_at: str, *, is_legacy: bool) -> Timeline:
    """Return the timeline of a metadata table with a commit that created a partition."""
    return Timeline.of(
        [Instant(requested_at, Action.DELTA_COMMIT, State.COMPLETED, completed_at, is_legacy)]
    )


def announced(requested_at: str) -> Timeline:
    """Return the timeline of a data table that had begun to build an index."""
    return Timeline.of([Instant(requested_at, Action.INDEXING, State.INFLIGHT)])


@pytest.mark.parametrize(
    ("requested_at", "recorded_at"),
    [(initial(10), f"{SECOND}000"), (f"{SECOND}300", f"{SECOND}300")],
    ids=["new metadata table", "index"],
)
def test_partition_may_be_built_later_in_the_second_that_a_store_records(
    requested_at: str, recorded_at: str
) -> None:
    """Layout 1 has times of modification, which many stores record in whole seconds.

    Such a time may be before the requested time, which the timeline then has instead.
    """
    metadata = built(requested_at, recorded_at, is_legacy=True)
    assert was_built_since(COMMIT, metadata, announced(f"{SECOND}300"))
    assert not was_built_since("20260303120001000", metadata, announced(f"{SECOND}300"))


def test_exact_times_decide_within_a_second() -> None:
    data = announced(f"{SECOND}300")
    for is_legacy in (False, True):
        assert not was_built_since(
            COMMIT, built(f"{SECOND}300", f"{SECOND}400", is_legacy=is_legacy), data
        )
        assert was_built_since(
            COMMIT, built(f"{SECOND}300", f"{SECOND}600", is_legacy=is_legacy), data
        )
    whole = built(f"{SECOND}300", f"{SECOND}000", is_legacy=False)
    assert not was_built_since(COMMIT, whole, data)
