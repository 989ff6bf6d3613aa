"""A writer counts as dead if its heartbeat has expired, and must treat itself as dead then."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest

from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.transaction.heartbeat import (
    HEARTBEAT_FOLDER,
    Heartbeat,
    HeartbeatExpired,
    HeartbeatPolicy,
    WriterAlive,
    clear_expired,
    find_alive,
    forget_heartbeat,
    is_fresh,
)
from lakemark.transaction.multi_writer import MultiWriter, find_dead, has_heartbeat
from tests.storages import CountingStorage

POLICY = HeartbeatPolicy(60.0, 2)
#: To it whoever has beaten was silent for too long already.
IMPATIENT = HeartbeatPolicy(60.0, -1)

OLD, OTHER = "20200101000000000", "20200101000000002"

Beat = Literal["none", "recent", "expired", "of another instant"]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(StorageLocation(str(tmp_path / "table")))


@pytest.fixture
def heartbeat(storage: Storage) -> Iterator[Heartbeat]:
    beats = Heartbeat(storage, OLD, POLICY)
    yield beats
    beats.stop()


def beat(storage: Storage, instant: str, age_s: float = 0.0) -> None:
    path = f"{HEARTBEAT_FOLDER}/{instant}"
    storage.put(path, b"")
    assert storage.set_modified_at(path, datetime.now(UTC) - timedelta(seconds=age_s))


def names(storage: Storage) -> list[str]:
    return sorted(info.name for info in storage.list_folder(HEARTBEAT_FOLDER)[1])


def pending(requested_at: str) -> Instant:
    return Instant(requested_at, Action.COMMIT, State.INFLIGHT)


@pytest.mark.parametrize("is_just_requested", [True, False])
@pytest.mark.parametrize("beats", Beat.__args__)  # type: ignore[attr-defined]
def test_a_writer_is_dead_without_a_recent_beat_unless_it_has_only_just_begun(
    storage: Storage, beats: Beat, is_just_requested: bool
) -> None:
    instant = pending(UTC_CLOCK.next_instant(None) if is_just_requested else OLD)
    if beats != "none":
        name = OTHER if beats == "of another instant" else instant.requested_at
        beat(storage, name, age_s=121.0 if beats == "expired" else 60.0)
    is_alive = beats == "recent" or is_just_requested
    expected = [] if is_alive else [instant]
    assert find_dead(storage, [instant], MultiWriter(POLICY), UTC_CLOCK) == expected
    assert has_heartbeat(storage, instant, MultiWriter(POLICY)) == (beats == "recent")


@pytest.mark.parametrize("beats", Beat.__args__)  # type: ignore[attr-defined]
def test_to_the_only_writer_of_a_table_all_others_are_dead_or_one_is_where_none_should_be(
    storage: Storage, beats: Beat
) -> None:
    instant = pending(UTC_CLOCK.next_instant(None))
    if beats != "none":
        name = OTHER if beats == "of another instant" else instant.requested_at
        beat(storage, name, age_s=121.0 if beats == "expired" else 60.0)
    if beats == "recent":
        with pytest.raises(WriterAlive, match=instant.requested_at):
            find_dead(storage, [instant], None, UTC_CLOCK)
    else:
        assert find_dead(storage, [instant], None, UTC_CLOCK) == [instant]
    assert has_heartbeat(storage, instant, None) == (beats == "recent")


def test_each_of_several_writers_is_judged_by_its_own_beat(storage: Storage) -> None:
    both = [pending(OLD), pending(OTHER)]
    beat(storage, OTHER)
    assert find_dead(storage, both, MultiWriter(POLICY), UTC_CLOCK) == [pending(OLD)]
    assert find_alive(storage, POLICY) == {OTHER}


def test_nothing_is_asked_of_storage_when_nothing_is_pending(storage: Storage) -> None:
    counting = CountingStorage(storage)
    assert find_dead(counting, [], MultiWriter(POLICY), UTC_CLOCK) == []
    assert counting.requests == []


@pytest.mark.parametrize(("age_s", "expected"), [(0.0, True), (60.0, True), (121.0, False)])
def test_an_instant_is_fresh_for_as_long_as_a_writer_may_be_silent(
    age_s: float, expected: bool
) -> None:
    moment = datetime.now(UTC) - timedelta(seconds=age_s)
    assert is_fresh(pending(UTC_CLOCK.format(moment)), POLICY, UTC_CLOCK) == expected


def test_beats_of_dead_writers_are_removed_but_for_those_of_pending_instants(
    storage: Storage,
) -> None:
    beat(storage, "of the dead", age_s=121.0)
    beat(storage, OLD, age_s=121.0)
    beat(storage, OTHER)
    clear_expired(storage, POLICY, {OLD})
    assert names(storage) == [OLD, OTHER]
    forget_heartbeat(storage, OLD)
    assert names(storage) == [OTHER]


def test_a_writer_beats_from_the_beginning_and_stops_for_good(heartbeat: Heartbeat) -> None:
    storage = heartbeat._storage
    assert names(storage) == [OLD]
    heartbeat.check()
    heartbeat.stop()
    assert names(storage) == []
    heartbeat._beat()
    assert names(storage) == []
    beat(storage, OLD)  # of the writer that executes the same plan next
    heartbeat.stop()
    assert names(storage) == [OLD]


def test_a_writer_beats_again_while_it_is_alive(heartbeat: Heartbeat) -> None:
    storage = heartbeat._storage
    beat(storage, OLD, age_s=121.0)
    assert find_alive(storage, POLICY) == set()
    heartbeat._beat()
    assert find_alive(storage, POLICY) == {OLD}


def test_a_writer_that_was_silent_for_too_long_does_not_come_back_to_life(
    storage: Storage,
) -> None:
    silent = Heartbeat(storage, OLD, IMPATIENT)
    with pytest.raises(HeartbeatExpired, match=OLD):
        silent.check()
    forget_heartbeat(storage, OLD)  # by the writer that undid its instant
    silent._beat()
    assert names(storage) == []
    silent.stop()
