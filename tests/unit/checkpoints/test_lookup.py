from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import permutations

import pytest

from checkpoints import commit_keys
from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.transaction import carried_metadata
from lakemark.transaction.carried_metadata import CHECKPOINT_KEY, CHECKPOINT_KEY_V2
from lakemark.transaction.streamer_progress import DamagedCheckpoint
from tests.unit.checkpoints.newest import newest_checkpoint

Commit = tuple[Instant, Mapping[str, str]]


def commit(
    requested: int, completed: int, offset: int | None, action: Action = Action.DELTA_COMMIT
) -> Commit:
    instant = Instant(at(requested), action, State.COMPLETED, at(completed))
    return instant, {} if offset is None else commit_keys.encode(orders(offset))


def at(second: int) -> str:
    return f"202601010000{second:02}000"


def orders(offset: int) -> KafkaCheckpoint:
    return KafkaCheckpoint("orders", {0: offset})


def test_an_empty_table_has_none() -> None:
    assert newest_checkpoint([]) is None
    assert newest_checkpoint([commit(1, 2, None)]) is None


def test_the_newest_by_completion_wins_in_any_order() -> None:
    commits = [commit(1, 2, 10), commit(3, 8, 30), commit(4, 5, 20)]
    for _ in range(6):
        random.shuffle(commits)
        assert newest_checkpoint(commits) == orders(30)


def test_commit_that_was_requested_first_and_completed_last_counts() -> None:
    """The search may end only at a commit that completed before the newest progress it found."""
    commits = [commit(1, 9, 40), commit(2, 3, 20), commit(4, 5, 30)]
    for ordered in permutations(commits):
        assert newest_checkpoint(ordered) == orders(40)


def test_commits_without_a_checkpoint_are_skipped() -> None:
    commits = [commit(1, 2, 10), commit(3, 4, None), commit(5, 6, None, Action.REPLACE_COMMIT)]
    assert newest_checkpoint(commits) == orders(10)


@pytest.mark.parametrize("service", [Action.COMMIT, Action.REPLACE_COMMIT])
def test_checkpoint_copied_by_a_long_service_is_not_progress(service: Action) -> None:
    commits = [commit(1, 2, 10), commit(3, 9, 10, service), commit(4, 5, 20)]
    assert newest_checkpoint(commits) == orders(20)


def test_batches_after_a_change_to_copy_on_write_count() -> None:
    assert newest_checkpoint([commit(1, 2, 10), commit(3, 4, 20, Action.COMMIT)]) == orders(20)


def test_pending_instants_and_services_without_rows_do_not_count() -> None:
    pending = Instant(at(7), Action.DELTA_COMMIT, State.INFLIGHT)
    commits: list[Commit] = [
        commit(1, 2, 10),
        commit(5, 6, 50, Action.CLEAN),
        (pending, commit_keys.encode(orders(70))),
    ]
    assert newest_checkpoint(commits) == orders(10)


def test_the_second_key_is_read_before_the_first() -> None:
    extra = {CHECKPOINT_KEY: "orders,0:1", CHECKPOINT_KEY_V2: "orders,0:2"}
    assert commit_keys.decode(extra) == orders(2)
    assert carried_metadata.carry_progress(extra) == {CHECKPOINT_KEY: "orders,0:2"}


def test_resets_of_the_other_streamer_are_carried_too() -> None:
    extra = {
        CHECKPOINT_KEY_V2: "orders,0:2",
        carried_metadata.RESET_KEY: "orders,0:0",
        "schema": "{}",
    }
    assert carried_metadata.carry_progress(extra) == {
        CHECKPOINT_KEY: "orders,0:2",
        carried_metadata.RESET_KEY: "orders,0:0",
    }


@pytest.mark.parametrize("value", ["", "orders", "orders,0", "20260101-000000"])
@pytest.mark.parametrize("key", [CHECKPOINT_KEY, CHECKPOINT_KEY_V2])
def test_a_damaged_checkpoint_stops_the_run_and_is_not_skipped(key: str, value: str) -> None:
    damaged = (commit(3, 4, None)[0], {key: value})
    with pytest.raises(DamagedCheckpoint, match=key) as raised:
        newest_checkpoint([commit(1, 2, 10), damaged])
    assert (raised.value.commit, raised.value.value) == (at(3), value)
