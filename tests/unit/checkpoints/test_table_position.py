"""A position in a table: what a commit records is what the next run finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import commit_keys
from checkpoints.files_position import FilesPosition
from checkpoints.table_position import PartRead, SnapshotRead, TablePosition
from lakemark.model.feed_position import FeedPosition

times = st.from_regex(r"2026\d{13}", fullmatch=True)
numbers = st.integers(0, 2**32 - 1)
positions = st.builds(
    TablePosition,
    table=st.sampled_from(["s3://lake/orders", "file:///lake/größe"]),
    after=st.builds(
        FeedPosition,
        times | st.just(""),
        times,
        st.booleans(),
        st.booleans(),
        st.none() | st.just("") | times,
    ),
    snapshot=st.none() | st.builds(SnapshotRead, times, numbers, numbers),
    part=st.none() | st.builds(PartRead, st.text(max_size=9), numbers, numbers),
)


@given(positions)
def test_position_is_read_back_from_its_text(position: TablePosition) -> None:
    assert commit_keys.parse_text(str(position)) == position
    assert not position.is_known_to_apache
    assert position.origin == position.table


def test_position_of_the_beginning_is_short() -> None:
    position = TablePosition(table="s3://lake/orders")
    assert str(position) == '{"source":"table","table":"s3://lake/orders"}'
    assert commit_keys.parse_text(str(position)) == position


@pytest.mark.parametrize(
    ("position", "summary"),
    [
        (TablePosition(table="s3://t"), "from the first commit"),
        (TablePosition(table="s3://t", after=FeedPosition("1", "2", True)), "after commit 1"),
        (
            TablePosition(table="s3://t", snapshot=SnapshotRead("3")),
            "snapshot as of 3",
        ),
        (
            TablePosition(table="s3://t", snapshot=SnapshotRead("3", 7, 1)),
            "snapshot as of 3, after 1 file slice",
        ),
        (
            TablePosition(
                table="s3://t", after=FeedPosition("1", "2", True), part=PartRead("4", 1_000, 5)
            ),
            "in commit 4, after 1,000 rows",
        ),
    ],
)
def test_summary_says_where_a_run_continues(position: TablePosition, summary: str) -> None:
    assert position.summary == summary


@pytest.mark.parametrize("text", ["20260501120000123", "20260501120000"])
def test_instant_of_apache_hudi_is_a_position_of_a_table(text: str) -> None:
    assert commit_keys.parse_text(text) == TablePosition(table="", after=FeedPosition(text, text))


@pytest.mark.parametrize(
    "text", ['{"source":"table"', '{"source":"table","after":["1"]}', '{"source":"table","part":7}']
)
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected the position in a table"):
        commit_keys.parse_text(text)


def test_position_of_files_is_no_position_of_a_table() -> None:
    found = commit_keys.parse_text(str(FilesPosition(folder="s3://lake/table")))
    assert isinstance(found, FilesPosition)
