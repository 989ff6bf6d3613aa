"""The messages about commits have the documented fields."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.files_position import FilesPosition
from checkpoints.snapshot_position import SnapshotPosition
from lakemark.config import keys
from streamer.hooks.messages import FORMATS, encode_commit
from streamer.hooks.notices import Announced, is_batch_of
from tests.unit.streamer.hooks.notice_samples import commit

PAGE = (Path(__file__).parents[4] / "docs" / "hooks.md").read_text()


def test_offsets_are_those_that_the_batch_has_read() -> None:
    message = json.loads(encode_commit(commit()))
    assert message["source"] == {
        "kind": "kafka",
        "name": "orders",
        "offsets": {"0": {"from": 100, "to": 112}},  # nothing was read from partition 1
    }
    assert message["completed_at"] == "2026-01-31T06:00:01.123Z"
    assert message["partitions"] == ["eu", "us"]
    assert (message["rows_written"], message["rows_deleted"]) == (10, 2)
    assert (message["records_read"], message["records_rejected"]) == (11, 1)


def test_rows_of_a_snapshot_have_a_position_and_no_offsets() -> None:
    topic = KafkaCheckpoint("orders", {0: 100})
    position = str(SnapshotPosition(read=FilesPosition(folder="s3://exports"), then=topic))
    progress = {"": {"checkpoint": position, "commit": commit().instant.requested_at}}
    extra = {
        keys.SOURCE_START: position,
        keys.CHECKPOINTS: json.dumps({"as_of": "", "streamers": progress}),
    }
    source = json.loads(encode_commit(commit(extra=extra)))["source"]
    assert source["position"] == position
    assert "offsets" not in source


def test_page_describes_every_field() -> None:
    for name, encode in FORMATS.items():
        for field in json.loads(encode(commit())):
            assert f"`{field}`" in PAGE, f"{field} of the format {name}"


def test_commit_without_facts_has_a_message() -> None:
    """A commit that an older version has written, for example, may lack facts."""
    bare = replace(commit(), metadata=replace(commit().metadata, extra_metadata={}))
    message = json.loads(encode_commit(bare))
    assert message["records_read"] is None
    assert message["source"] == {"kind": "kafka", "name": "orders", "position": None}


def test_only_batches_of_the_pipeline_are_announced() -> None:
    own = Announced("", {"http": ""}).encode()
    assert is_batch_of("", commit(extra=own).metadata)
    assert not is_batch_of("other", commit(extra=own).metadata)
    assert not is_batch_of("", commit().metadata), "a commit without hooks"
    empty = json.dumps({**json.loads(commit().metadata.extra_metadata[keys.AUDIT]), "offsets": 0})
    assert not is_batch_of("", commit(extra={**own, keys.AUDIT: empty}).metadata), "only a start"
    for damaged in ("", "{", "[]", '{"id": "", "announced": 3}'):
        assert Announced.in_commit(commit(extra={keys.HOOKS: damaged}).metadata) is None
