"""A position in a folder of files: each version of a file is read once, however late it appears."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import commit_keys
from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.files_position import FilePart, FilesPosition, FileVersion, Memory

FOLDER = "s3://lake/in"
MEMORY = Memory(files=8, late_us=50)
NOW = 100_000

#: Files that appear at some time, and were modified at most ``late_us`` before.
arrivals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 200), st.sampled_from("abcdef")), max_size=30
)


def read_back(position: FilesPosition) -> FilesPosition:
    """Return the position that a run finds in the commit of another run."""
    parsed = commit_keys.parse_text(str(position))
    assert isinstance(parsed, FilesPosition)
    assert parsed == position
    return parsed


def test_summary_says_where_a_run_continues() -> None:
    begin = FilesPosition(folder=FOLDER)
    first, second = FileVersion(1_000, "a.csv", 10), FileVersion(2_000, "b.csv", 10)
    assert begin.summary == "from the first file"
    begun = begin.after([], FilePart(first, 5, 1_500), [first, second], MEMORY, NOW)
    assert begun.summary == "in a.csv, after 1,500 records"
    assert begun.after([first], None, [second], MEMORY, NOW).summary == "after a.csv"
    since = FilesPosition.after_time(FOLDER, 1_777_636_800_000)
    assert since.summary == "files modified since 2026-05-01T12:00:00Z"


@given(arrivals, st.integers(1, 4))
def test_each_file_is_read_once_if_it_is_not_too_late(
    drawn: list[tuple[int, int, str]], batch_files: int
) -> None:
    """The files appear by and by. Each of them was modified at most ``late_us`` earlier."""
    position = FilesPosition(folder=FOLDER)
    memory = replace(MEMORY, files=100)
    listed: dict[str, FileVersion] = {}
    read: list[FileVersion] = []
    now = 1_000
    for late, waits, name in [*drawn, (0, 0, "last")]:
        now += waits
        path = f"{name}-{len(read)}-{len(listed)}"
        listed[path] = FileVersion(now - min(late, MEMORY.late_us), path, 10)
        unread = position.find_unread(listed.values())
        assert not position.find_changed(unread)
        while unread:
            some, unread = unread[:batch_files], unread[batch_files:]
            read += some
            position = read_back(position.after(some, None, unread, memory, now))
    assert sorted(read) == sorted(listed.values())
    assert not position.find_unread(listed.values())


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=60, unique=True))
def test_the_size_of_a_position_is_limited(times: list[int]) -> None:
    position = FilesPosition(folder=FOLDER)
    for time in sorted(times):
        file = FileVersion(time, "x" * 20, 1)
        position = position.after([file], None, [], MEMORY, NOW)
        assert len(position.remembered) <= MEMORY.files
        assert not position.find_unread([file])


def test_a_late_file_before_the_newest_is_read_and_counts_no_other_as_read() -> None:
    early, late, newest = (FileVersion(time, f"{time}.json", 1) for time in (100, 120, 140))
    position = FilesPosition(folder=FOLDER).after([newest], None, [], MEMORY, NOW)
    assert position.find_unread([early, late, newest]) == [early, late]
    nothing_remembered = Memory(files=0, late_us=0)
    # Only ``early`` was read yet, so the limit must not go beyond it, although nothing should be
    # remembered.
    position = position.after([early], None, [late], nothing_remembered, NOW)
    assert position.find_unread([early, late, newest]) == [late]


def test_a_changed_file_is_unread_and_reported() -> None:
    old = FileVersion(100, "a.json", 1)
    position = FilesPosition(folder=FOLDER).after([old], None, [], MEMORY, NOW)
    new = FileVersion(110, "a.json", 2)
    unread = position.find_unread([new])
    assert unread == position.find_changed(unread) == [new]
    position = position.after([new], None, [], MEMORY, NOW)
    assert position.remembered == (new,)


def test_a_replacement_with_an_older_time_is_unread_and_reported() -> None:
    """A copy may keep the time of its original. The limit is after it, because it was not there."""
    kept, old = FileVersion(100, "kept", 1), FileVersion(210, "a.json", 1)
    position = FilesPosition(folder=FOLDER).after([kept, old], None, [], MEMORY, NOW)
    assert position.read_to == kept.order
    new = FileVersion(90, "a.json", 2)
    unread = position.find_unread([kept, new])
    assert unread == position.find_changed(unread) == [new]
    position = read_back(position.after([new], None, [], MEMORY, NOW))
    assert not position.find_unread([kept, new])


def test_a_file_with_a_future_time_does_not_make_others_old() -> None:
    future, now = FileVersion(NOW + 1_000_000, "future", 1), FileVersion(NOW, "now", 1)
    position = FilesPosition(folder=FOLDER).after([now, future], None, [], MEMORY, NOW)
    late = FileVersion(NOW - 20, "late", 1)
    assert position.find_unread([now, late, future]) == [late]


def test_a_file_that_was_read_in_part_is_continued_before_all_others() -> None:
    large, late = FileVersion(120, "large.json", 10**10), FileVersion(100, "late.json", 1)
    part = FilePart(large, 5_000_000, 1_000)
    position = read_back(FilesPosition(folder=FOLDER).after([], part, [large], MEMORY, NOW))
    assert position.find_unread([large, late]) == [large, late]
    assert position.begin_of(large) == part
    assert position.begin_of(late) == FilePart(late, 0, 0)
    changed = replace(large, size_bytes=3, modified_us=130)
    assert position.find_changed(position.find_unread([changed])) == [changed]
    assert position.begin_of(changed) == FilePart(changed, 0, 0)


def test_a_checkpoint_of_apache_hudi_is_the_largest_modification_time_in_milliseconds() -> None:
    position = commit_keys.parse_text("1700000000123")
    assert isinstance(position, FilesPosition)
    read = FileVersion(1_700_000_000_123_999, "z", 1)
    new = FileVersion(1_700_000_000_124_000, "a", 1)
    assert position.find_unread([new, read]) == [new]
    nothing_read = commit_keys.parse_text("-9223372036854775808")
    assert nothing_read == FilesPosition(folder="")


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{",
        '{"source":"files","read_to":[1]}',
        '{"source":"tables"}',
        '{"source":"files","remembered":[["x","y","z"]]}',
        '{"source":"files","part":[1,"a",1]}',
        "[]",
        "2026010100000000",
        "9999999999999",
        "-1",
    ],
)
def test_a_text_that_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"position|topic|found"):
        commit_keys.parse_text(text)


def test_the_text_of_a_kafka_checkpoint_stays_one() -> None:
    assert commit_keys.parse_text("orders,0:7") == KafkaCheckpoint("orders", {0: 7})
