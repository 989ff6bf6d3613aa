"""The life of each action on the timeline, as the specifications demand it.

The tests look at every write of a history in which each action occurs, to the table and to its
metadata table.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import pytest

from lakemark.model.action import COMMITS, Action, State
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.format_version import FormatVersion
from lakemark.timeline.content import decode_commit
from tests.spec.recorded_table import METADATA, History, copy_on_write, every_action

#: Actions whose requested file is a plan.
PLANNED = (
    Action.CLEAN,
    Action.CLUSTERING,
    Action.COMPACTION,
    Action.INDEXING,
    Action.LOG_COMPACTION,
    Action.REPLACE_COMMIT,
    Action.RESTORE,
    Action.ROLLBACK,
)

#: States by the requested time and the completed action of an instant.
_Lives = dict[tuple[str, Action], list[State]]

BELOW = pytest.mark.parametrize("below", ["", METADATA], ids=["table", "metadata table"])


def test_every_action_occurs() -> None:
    """Every action that the specifications name can be requested, and most have a name when done.

    A compaction completes as a commit, a log compaction as a delta commit, and a clustering as a
    replace commit.
    """
    instants = [instant for _, instant, _ in every_action().states()]
    assert {i.action for i in instants if i.state is State.REQUESTED} == {
        *PLANNED,
        Action.DELTA_COMMIT,
    }
    assert {i.action for i in instants if i.is_completed} == {
        Action.CLEAN,
        Action.COMMIT,
        Action.DELTA_COMMIT,
        Action.INDEXING,
        Action.REPLACE_COMMIT,
        Action.RESTORE,
        Action.ROLLBACK,
        Action.SAVEPOINT,
    }
    rewrites = [i for _, i, _ in copy_on_write().states() if i.state is State.REQUESTED]
    assert {i.action for i in rewrites} == {Action.COMMIT}


@pytest.mark.parametrize("version", [FormatVersion.V6, FormatVersion.V9])
@BELOW
def test_each_action_is_requested_then_inflight_then_completed(
    version: FormatVersion, below: str
) -> None:
    lives = _lives(every_action(version), below)
    assert lives
    for (requested_at, action), states in lives.items():
        first = (
            [State.INFLIGHT] if action is Action.SAVEPOINT else [State.REQUESTED, State.INFLIGHT]
        )
        assert states in (first, [*first, State.COMPLETED]), (requested_at, action, states)


def test_only_what_was_rolled_back_did_not_complete() -> None:
    history = every_action()
    lives = _lives(history)
    unfinished = {time for (time, _), states in lives.items() if states[-1] is not State.COMPLETED}
    listed = {
        history.layout.parse(info.name)
        for info in history.storage.list_folder(history.layout.folder)[1]
    }
    assert len(unfinished) == 1, "the commit that was abandoned"
    assert not [one for one in listed if one is not None and one.requested_at in unfinished]


def test_a_plan_is_stored_when_it_is_requested_and_never_changes() -> None:
    """The content of a state is written once; a plan is not empty."""
    history = every_action()
    contents = defaultdict(set)
    for _, instant, write in history.states():
        assert write.method in ("create", "publish"), write.path
        contents[write.path].add(write.content)
        if instant.state is State.REQUESTED:
            assert bool(write.content) == (instant.action in PLANNED), write.path
    assert all(len(stored) == 1 for stored in contents.values())


@BELOW
def test_data_files_are_written_while_their_instant_is_inflight(below: str) -> None:
    """All files of an instant exist before it completes, and none before it is inflight."""
    history, found = every_action(), 0
    for number, write in enumerate(history.writes):
        path = write.path.removeprefix(below)
        name = path.rpartition("/")[2]
        parsed = BaseFileName.parse(name) or LogFileName.parse(name)
        if write.method == "delete" or parsed is None or path.startswith(".hoodie/"):
            continue
        if not write.path.startswith(below) or parsed.instant.startswith("0" * 14):
            continue  # the first files of a metadata table
        found += 1
        assert history.number_of(parsed.instant, State.INFLIGHT, below) < number, path
        lives = _lives(history, below)
        done = [life[-1] for (time, _), life in lives.items() if time == parsed.instant]
        if State.COMPLETED in done:
            assert number < history.number_of(parsed.instant, State.COMPLETED, below), path
    assert found > 10


def test_the_metadata_table_changes_in_the_transaction_of_each_action() -> None:
    """The metadata table has a commit of the same time, which completes right before the action.

    A rollback of what never completed does not change it, and a restore drops it.
    """
    history = every_action()
    of_metadata = {
        instant.requested_at: number
        for number, instant, _ in history.states(METADATA)
        if instant.is_completed
    }
    for number, instant, _ in history.states():
        if instant.is_completed and instant.action in (*COMMITS, Action.CLEAN):
            assert of_metadata[instant.requested_at] < number, instant


def test_times_increase_from_one_action_to_the_next() -> None:
    """Requested and completion times are unique, and later than all earlier ones."""
    times = []
    for _, instant, _ in every_action().states():
        if instant.completed_at is not None:
            times.append(instant.completed_at)
        elif instant.state is State.REQUESTED:
            times.append(instant.requested_at)
    assert all(earlier < later for earlier, later in pairwise(times))
    assert {len(time) for time in times} == {len("yyyyMMddHHmmssSSS")}


def test_a_completed_commit_describes_its_files() -> None:
    """It has the numbers of records by file id, the sizes of files, and the schema."""
    history = copy_on_write()
    first, second = [
        decode_commit(write.content, write.path)
        for _, instant, write in history.states()
        if instant.is_completed
    ]
    assert _counts(first) == {"north": (1, 0, 0), "south": (1, 0, 0)}
    assert _counts(second) == {"north": (0, 1, 0), "south": (1, 0, 0)}
    for commit in (first, second):
        schema = json.loads(commit.extra_metadata["schema"])
        assert [field["name"] for field in schema["fields"]] == ["id", "region", "ts", "v"]
        for stat in commit.write_stats:
            info = history.storage.head(stat.path or "")
            assert info is not None
            assert stat.file_size_in_bytes == info.size_bytes
            assert stat.file_id == (stat.path or "").rpartition("/")[2].partition("_")[0]


def test_side_effects_are_removed() -> None:
    """No marker, heartbeat or prepared content remains, and no file of what was rolled back."""
    history = every_action()
    lives = _lives(history)
    paths = [info.path for info in history.storage.list_tree("")]
    for folder in (".hoodie/.temp/", ".hoodie/.heartbeat/", ".hoodie/.aux/prepared/"):
        assert not [path for path in paths if path.startswith(folder)]
    undone = [time for (time, _), states in lives.items() if states[-1] is not State.COMPLETED]
    assert not [path for path in paths for time in undone if time in path.rpartition("/")[2]]


def _lives(history: History, below: str = "") -> _Lives:
    """Return the states of each instant in the order in which it reached them."""
    lives: _Lives = defaultdict(list)
    for _, instant, _ in history.states(below):
        lives[instant.requested_at, instant.action.completes_as].append(instant.state)
    return lives


def _counts(commit: CommitMetadata) -> dict[str, tuple[int, int, int]]:
    return {
        stat.partition_path or "": (stat.num_inserts, stat.num_update_writes, stat.num_deletes)
        for stat in commit.write_stats
    }
