"""Commit metadata is the same from Avro and from JSON; errors name damaged files."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.errors import CorruptData
from lakemark.model.action import Action
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.format_version import FormatVersion
from lakemark.timeline.content import decode_as, decode_commit, encode_commit

texts = st.text(st.characters(codec="utf-8"), max_size=8)
stats = st.builds(
    WriteStat,
    file_id=texts,
    path=texts,
    partition_path=texts,
    num_writes=st.integers(0, 2**40),
    file_size_in_bytes=st.integers(0, 2**40),
    log_files=st.none() | st.lists(texts, max_size=2).map(tuple),
)
commits = st.builds(
    CommitMetadata,
    write_stats=st.lists(stats, max_size=3).map(tuple),
    extra_metadata=st.dictionaries(texts, texts, max_size=3),
    operation=st.sampled_from(["UPSERT", "COMPACT"]),
    compacted=st.booleans(),
)


@given(commits)
def test_json_and_avro_say_the_same(metadata: CommitMetadata) -> None:
    as_json = json.dumps(metadata.to_record()).encode()
    as_avro = encode_commit(Action.COMMIT, metadata)
    assert decode_commit(as_json, "j") == decode_commit(as_avro, "a")


def test_json_of_old_writers_lacks_fields_and_has_others() -> None:
    stat = {"fileId": "g", "path": "p/x.parquet", "totalLogBlocksSize": 0, "cdcStats": None}
    record = {
        "partitionToWriteStats": {"": [stat]},
        "compacted": False,
        "extraMetadata": {"schema": "{}"},
        "partitionToReplaceFileIds": {"p": ["old"]},
        "writePartitionPaths": [""],
    }
    metadata = decode_commit(json.dumps(record, indent=2).encode(), "c")
    assert metadata.write_stats == (WriteStat(file_id="g", path="p/x.parquet"),)
    assert metadata.replaced_file_ids == {"p": ("old",)}
    assert metadata.operation == "UNKNOWN"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '"text"',
        '{"partitionToWriteStats": []}',
        '{"partitionToWriteStats": {"p": {}}}',
        '{"partitionToWriteStats": {"p": [7]}}',
        '{"partitionToWriteStats": {"p": [{"path": 7}]}}',
        '{"partitionToWriteStats": {"p": [{"fileSizeInBytes": "7"}]}}',
        '{"partitionToReplaceFileIds": {"p": "ids"}}',
        '{"partitionToReplaceFileIds": {"p": [7]}}',
        '{"extraMetadata": {"schema": {}}}',
        "[" * 100_000,
    ],
)
def test_other_json_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptData, match="some/path"):
        decode_commit(text.encode(), "some/path")


@given(commits, st.data())
def test_damaged_commits_never_crash(metadata: CommitMetadata, data: st.DataObject) -> None:
    whole = data.draw(
        st.sampled_from(
            [encode_commit(Action.COMMIT, metadata), json.dumps(metadata.to_record()).encode()]
        )
    )
    position = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[position] ^= data.draw(st.integers(1, 255))
    for content in (bytes(damaged), whole[:position]):
        try:
            read = decode_commit(content, "c")
        except CorruptData:
            continue
        assert isinstance(read, CommitMetadata)


def test_a_record_without_the_fields_is_corrupt() -> None:
    content = encode_commit(Action.COMMIT, CommitMetadata())
    with pytest.raises(CorruptData, match="fileId"):
        decode_as(lambda record: record["fileId"], content, "plan")


def test_json_has_no_version() -> None:
    """Apache Hudi's JSON of layout 1 has no version either."""
    written = json.loads(encode_commit(Action.COMMIT, CommitMetadata(), FormatVersion.V6))
    assert "version" not in written


@pytest.mark.parametrize(
    ("operation", "may_change"),
    [
        ("UPSERT", True),
        ("BULK_INSERT", True),
        ("INSERT_OVERWRITE", True),
        ("COMPACT", False),
        ("LOG_COMPACT", False),
        ("CLUSTER", False),
        ("INDEX", False),
    ],
)
def test_only_writes_change_the_schema(operation: str, may_change: bool) -> None:
    assert CommitMetadata(write_stats=(), operation=operation).may_change_schema is may_change
