"""Several streamers of one table: no streamer loses its progress."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import commit_keys
from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.lookup import newest_progress, newest_table_progress
from checkpoints.progress import Progress, TableProgress, encode_progress
from lakemark.config import keys
from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.transaction import carried_metadata
from lakemark.transaction.streamer_progress import (
    DEFAULT_IDENTITY,
    DamagedCheckpoint,
    commits_to_keep,
)
from tests.unit.checkpoints.newest import newest_checkpoint

Commit: TypeAlias = tuple[Instant, Mapping[str, str]]
IDENTITIES = (DEFAULT_IDENTITY, "a", "b")


def kept_commits(commits: Iterable[Commit]) -> frozenset[str]:
    return commits_to_keep(commits, lambda requested_at: True)


def at(tick: int) -> str:
    return f"2026010100{tick:07}"


def orders(offset: int) -> KafkaCheckpoint:
    return KafkaCheckpoint("orders", {0: offset})


def instant(began: int, completed: int, action: Action = Action.DELTA_COMMIT) -> Instant:
    return Instant(at(began), action, State.COMPLETED, at(completed))


def written(
    known: list[Commit], began: int, completed: int, identity: str, offset: int | None
) -> Commit:
    """Create a commit of one streamer that had seen the commits ``known`` when it began."""
    as_of = max((i.completed_at or "" for i, _ in known), default="")
    checkpoint = None if offset is None else orders(offset)
    progress = Progress(checkpoint=checkpoint, commit=at(began), topic_id=f"topic of {identity}")
    reported = TableProgress(newest_table_progress(known).streamers, as_of).with_progress(
        identity, progress
    )
    return instant(began, completed), encode_progress(reported, identity)


steps = st.lists(
    st.tuples(
        st.sampled_from([*IDENTITIES, "foreign", "service"]),
        st.integers(0, 4),  # commits that it has not seen when it lists the timeline
        st.integers(1, 9),
        st.booleans(),
    ),
    max_size=14,
)


@given(steps, st.data())
def test_newest_progress_counts_regardless_of_its_commit_and_of_archival(
    steps: list[tuple[str, int, int, bool]], data: st.DataObject
) -> None:
    commits: list[Commit] = []
    ticks: list[int] = []
    newest: dict[str, KafkaCheckpoint | None] = {}
    for tick, (who, unseen, offset, is_reset) in enumerate(steps, 1):
        mine = [n for n, commit in enumerate(commits, 1) if _is_own(commit, who)]
        # A streamer may have missed what others just committed, but not its own.
        seen = max(len(commits) - unseen, *mine, 0) if mine else max(len(commits) - unseen, 0)
        listed_at = 100 * ticks[seen - 1] if seen else 0
        is_late = data.draw(st.booleans(), label="requested long after it listed the timeline")
        began = 100 * tick - 50 + tick if is_late else listed_at + tick
        known = commits[:seen]
        if who in IDENTITIES:
            step = None if is_reset else offset
            commits.append(written(known, began, 100 * tick, who, step))
            newest[who] = None if step is None else orders(step)
        elif who == "foreign":
            commits.append((instant(began, 100 * tick), {"schema": "{}"}))
        else:
            carried = carried_metadata.carry_progress(known[-1][1]) if known else {}
            commits.append((instant(began, 100 * tick, Action.COMMIT), carried))
        ticks.append(tick)
    kept = kept_commits(commits)
    archived = {
        i.requested_at
        for i, _ in commits
        if i.requested_at not in kept and data.draw(st.booleans(), label="archived")
    }
    active = [commit for commit in commits if commit[0].requested_at not in archived]
    shuffled = data.draw(st.permutations(active))
    for identity in IDENTITIES:
        assert newest_checkpoint(shuffled, identity) == newest.get(identity), identity
        found = newest_progress(shuffled, identity)
        assert (found is not None) == (identity in newest)
        assert newest_table_progress(shuffled).streamers.get(identity) == found


def _is_own(commit: Commit, who: str) -> bool:
    reported = newest_table_progress([commit]).streamers.get(who)
    return reported is not None and reported.commit == commit[0].requested_at


def test_default_streamer_shares_its_checkpoint_with_apache_hudis_streamer() -> None:
    ours = written([], 1, 2, DEFAULT_IDENTITY, 10)
    assert commit_keys.decode(ours[1]) == orders(10)
    other = written([ours], 3, 4, "a", 7)
    assert commit_keys.decode(other[1]) is None, (
        "theirs would go on from our offsets of another topic"
    )
    theirs: Commit = (instant(5, 6), {carried_metadata.CHECKPOINT_KEY_V2: "orders,0:20"})
    progress = newest_progress([ours, other, theirs])
    assert progress == Progress(
        checkpoint=orders(20), commit=at(5), known_at=at(6), key=carried_metadata.CHECKPOINT_KEY_V2
    )


def test_applied_options_of_apache_hudis_streamer_are_kept() -> None:
    theirs: Commit = (
        instant(1, 2),
        {carried_metadata.CHECKPOINT_KEY: "orders,0:5", carried_metadata.RESET_KEY: "x"},
    )
    before = newest_progress([theirs])
    assert before is not None
    ours = Progress(checkpoint=orders(6), commit=at(3), applied=before.applied)
    reported = encode_progress(TableProgress({"": ours}), "")
    assert {k: v for k, v in reported.items() if k != keys.CHECKPOINTS} == {
        carried_metadata.CHECKPOINT_KEY: "orders,0:6",
        carried_metadata.RESET_KEY: "x",
    }
    carried = encode_progress(TableProgress({"": ours, "a": replace(ours, commit=at(4))}), "a")
    again = newest_progress([(instant(4, 5), carried)])
    assert again is not None
    assert again.applied == {carried_metadata.RESET_KEY: "x"}


def test_a_reset_is_newer_than_what_it_dropped() -> None:
    first = written([], 1, 2, "a", 10)
    reset = written([first], 3, 4, "a", None)
    later = written([first, reset], 5, 6, "b", 3)
    progress = newest_progress([first, reset, later], "a")
    assert progress == Progress(
        checkpoint=None, commit=at(3), known_at=at(4), topic_id="topic of a"
    )


def test_only_commits_with_newest_progress_are_kept() -> None:
    first = written([], 1, 2, DEFAULT_IDENTITY, 10)
    foreign: Commit = (instant(3, 4), {})
    assert kept_commits([first, foreign]) == {at(1)}
    second = written([first, foreign], 5, 6, "a", 1)
    third = written([first, foreign, second], 7, 8, "b", 1)
    assert kept_commits([second, third]) == {at(7)}
    commits = [first, foreign, second, third]
    assert kept_commits(commits) == {at(1), at(7)}, "Apache Hudi's streamer reads these"
    compaction: Commit = (instant(9, 10, Action.COMMIT), carried_metadata.carry_progress(first[1]))
    assert kept_commits([*commits, compaction]) == {at(1), at(7)}
    reset = written(commits, 11, 12, DEFAULT_IDENTITY, None)
    assert kept_commits([*commits, reset]) == {at(11)}, "no streamer resumes from there"


def test_a_streamer_of_apache_hudi_that_never_comes_back_holds_no_timeline_for_ever() -> None:
    commits = [written([], 1, 2, DEFAULT_IDENTITY, 10)]
    for tick in range(3, 1003, 2):
        commits.append(written(commits[-1:], tick, tick + 1, "a", tick))
    assert kept_commits(commits[:-1]) == {at(1), at(999)}
    assert kept_commits(commits) == {at(1001)}


def test_copied_checkpoint_is_kept_where_apache_hudis_streamer_reads_it() -> None:
    theirs: Commit = (instant(1, 2), {carried_metadata.CHECKPOINT_KEY_V2: "orders,0:20"})
    compaction: Commit = (instant(3, 4, Action.COMMIT), carried_metadata.carry_progress(theirs[1]))
    ours = written([theirs, compaction], 5, 6, "a", 1)
    assert kept_commits([theirs, compaction, ours]) == {at(1), at(5)}


def test_archived_progress_is_found_behind_a_commit_that_lacks_it() -> None:
    first = written([], 1, 2, "a", 10)
    others: Commit = (instant(3, 4), {})
    later = written([others], 5, 6, DEFAULT_IDENTITY, 3)  # by then only the archive knew of "a"
    assert newest_checkpoint([first, others, later], "a") == orders(10)


def test_checkpoint_copied_from_a_rolled_back_commit_is_not_progress() -> None:
    first, undone = written([], 1, 2, "a", 10), written([], 4, 5, "a", 20)
    service: Commit = (instant(3, 6, Action.COMMIT), carried_metadata.carry_progress(undone[1]))
    commits = [first, service]
    assert newest_checkpoint(commits, "a") == orders(20)
    effective = {i.requested_at for i, _ in commits}
    progress = newest_progress(commits, "a", effective.__contains__)
    assert progress is not None
    assert progress.checkpoint == orders(10)
    assert newest_table_progress(commits, effective.__contains__).streamers == {"a": progress}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"as_of":""}',
        '{"as_of":"","streamers":{"a":{"checkpoint":"t,x","commit":""}}}',
    ],
)
def test_damaged_progress_stops_the_run(text: str) -> None:
    damaged: Commit = (instant(3, 4), {keys.CHECKPOINTS: text})
    older = written([], 1, 2, "a", 1)
    expected = f"{keys.CHECKPOINTS}=.*, expected JSON with streamers and as_of; set the offsets"
    with pytest.raises(DamagedCheckpoint, match=expected):
        newest_checkpoint([older, damaged], "a")
    assert newest_table_progress([older, damaged], skips_damaged=True).streamers[
        "a"
    ].checkpoint == orders(1)


def test_the_stored_form_is_one_json_value() -> None:
    known = Progress(checkpoint=orders(1), commit=at(1), known_at=at(2), topic_id="id")
    own = Progress(checkpoint=orders(5), commit=at(3), applied={carried_metadata.IGNORE_KEY: "i"})
    (text,) = encode_progress(TableProgress({"": known, "a": own}, at(2)), "a").values()
    assert json.loads(text) == {
        "as_of": at(2),
        "streamers": {
            "": {
                "checkpoint": "orders,0:1",
                "commit": at(1),
                "known_at": at(2),
                "topic_id": "id",
            },
            "a": {
                "checkpoint": "orders,0:5",
                "commit": at(3),
                "obeyed": {carried_metadata.IGNORE_KEY: "i"},
            },
        },
    }


def test_progress_before_a_rolled_back_commit_counts_again() -> None:
    first = written([], 1, 2, "a", 10)
    undone = written([first], 3, 4, "a", 20)
    later = written([first, undone], 5, 6, "b", 1)
    effective = {at(1), at(5)}
    reported = newest_table_progress([first, later], effective.__contains__).streamers
    assert {name: one.checkpoint for name, one in reported.items()} == {
        "a": orders(10),
        "b": orders(1),
    }


def test_apache_hudis_streamer_resumes_from_the_commit_that_completed_last() -> None:
    first: Commit = (instant(3, 4), {carried_metadata.CHECKPOINT_KEY_V2: "orders,0:5"})
    second: Commit = (instant(1, 6), {carried_metadata.CHECKPOINT_KEY_V2: "orders,0:9"})
    assert kept_commits([first, second]) == {at(1)}


def test_checkpoint_of_apache_hudis_streamer_overrides_progress_that_it_copied() -> None:
    ours = written([], 1, 2, DEFAULT_IDENTITY, 5)
    theirs: Commit = (instant(3, 4), {**ours[1], carried_metadata.CHECKPOINT_KEY_V2: "orders,0:9"})
    assert newest_checkpoint([ours, theirs]) == orders(9)
