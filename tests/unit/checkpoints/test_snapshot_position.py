"""A position in a snapshot contains the offsets at which the topic is read afterwards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import commit_keys
from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.files_position import FilePart, FilesPosition, FileVersion
from checkpoints.position import Position
from checkpoints.snapshot_position import SnapshotPosition
from checkpoints.table_position import PartRead, SnapshotRead, TablePosition
from lakemark.model.feed_position import FeedPosition

_files = st.builds(FileVersion, st.integers(0, 10**16), st.text(min_size=1), st.integers(0, 2**40))
_of_files = st.builds(
    FilesPosition,
    folder=st.text(min_size=1),
    read_to=st.tuples(st.integers(0, 10**16), st.text()),
    part=st.none() | st.builds(FilePart, _files, st.integers(0, 99), st.integers(0, 99)),
)
_of_table = st.builds(
    TablePosition,
    table=st.text(min_size=1),
    after=st.builds(FeedPosition, st.text(), st.text(), st.booleans(), st.booleans()),
    snapshot=st.none() | st.builds(SnapshotRead, st.text(min_size=1), st.integers(0, 9)),
    part=st.none() | st.builds(PartRead, st.text(min_size=1), st.integers(0), st.integers(0)),
)
_offsets = st.dictionaries(st.integers(0, 99), st.integers(0, 2**62), min_size=1)


@given(_of_files | _of_table, _offsets)
def test_a_run_finds_the_position_that_another_run_has_committed(
    read: FilesPosition | TablePosition, offsets: dict[int, int]
) -> None:
    position = SnapshotPosition(read=read, then=KafkaCheckpoint("orders", offsets))
    assert commit_keys.parse_text(str(position)) == position
    assert position.offsets_by_partition == offsets
    assert not position.is_known_to_apache, "Apache Hudi's streamer would skip the snapshot"


def test_positions_of_other_sources_keep_their_kind() -> None:
    folder = FilesPosition(folder="s3://exports/orders")
    table = TablePosition(table="s3://lake/orders")
    topic = KafkaCheckpoint("orders", {0: 1})
    positions: list[Position] = [folder, table, topic]
    assert [commit_keys.parse_text(str(one)) for one in positions] == positions
    position = SnapshotPosition(read=folder, then=topic)
    assert position.summary == "from the first file, then 0:1"
    assert str(position) == (
        '{"source":"snapshot","read":{"source":"files","folder":"s3://exports/orders"},'
        '"then":"orders,0:1"}'
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"source":"snapshot"}',
        '{"source":"snapshot","read":{"source":"files","folder":"f"},"then":"orders,0:x"}',
        '{"source":"snapshot","read":{"source":"other"},"then":"orders,0:1"}',
        '{"source":"snapshot","read":"orders,0:1","then":"orders,0:1"}',
        '{"source":"snapshots","read":{"source":"files","folder":"f"},"then":"orders,0:1"}',
    ],
)
def test_a_damaged_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected the position in"):
        commit_keys.parse_text(text)
