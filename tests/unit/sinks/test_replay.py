"""A replay converts dead letters again, and writes each record that passes exactly once.

``tests/recovery/test_every_write.py`` stops a replay at every write.
"""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from lakemark.config import keys
from lakemark.config.table_properties import TableType
from lakemark.errors import Refused, WriteConflict
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.create import create_table
from lakemark.operations.duplicate_keys import Duplicates
from lakemark.operations.open_table import open_table
from lakemark.operations.restore import restore_table
from lakemark.operations.rollback import roll_back_instant
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.storage import StorageLocation
from lakemark.transaction.conflicts import BucketCountsChanged, ResizePlanned
from lakemark.transaction.multi_writer import MultiWriter
from lakemark.write.partitioner import Bucket
from sinks.hudi.partition_rule import PartitionChange
from sinks.hudi.prepare import BucketWriter
from sinks.hudi.replay import LetterReplay
from sinks.letter_claims import ClaimJudge, Claims
from sinks.letter_layout import INDEX, WITHOUT_DAYS, dead_letter_spec
from streamer.commands.dead_letters import list_letters
from tests.json_stream import JsonStream, Record, Tombstone
from transforms.decode.schema_policy import SchemaPolicy
from transforms.raw_records import HeaderColumn
from transforms.rejects import REJECTS_SCHEMA, Rejects

STRICT = SchemaPolicy(unknown_fields="reject")

#: The last two records have a field that only a pipeline without ``STRICT`` accepts.
RECORDS: tuple[Record, ...] = (
    {"id": "a", "ts": 5, "n": 1},
    b"no JSON",
    {"id": "b", "ts": 1, "n": 2, "other": 3},
    {"id": "a", "ts": 4, "n": 9, "other": 3},
)


def somewhere() -> StorageLocation:
    return StorageLocation(f"memory://{uuid4().hex}/orders")


def rejecting(location: StorageLocation, **settings: Any) -> JsonStream:
    """Run a pipeline that rejects unknown fields."""
    stream = JsonStream(location, STRICT, **settings)
    stream.write(RECORDS)
    return stream


def test_records_that_pass_are_merged_by_event_time_and_the_others_stay() -> None:
    before = rejecting(somewhere())
    stream = JsonStream(before.location)
    preview = stream.replay().preview(None)
    assert (preview.passed, sum(one.num_rows for one in preview.failed)) == (2, 1)
    assert stream.read() == {"a": {"id": "a", "ts": 5, "n": 1}}, "a preview changes nothing"

    result = stream.replay().run(None)
    assert result.passed == 2
    assert stream.read() == {
        "a": {"id": "a", "ts": 5, "n": 1},  # the replayed record is an earlier event
        "b": {"id": "b", "ts": 1, "n": 2},
    }
    letters = stream.letters()
    assert [letters[offset]["attempts"] for offset in (1, 2, 3)] == [2, 2, 2]
    assert [letters[offset]["replayed_in"] for offset in (2, 3)] == result.instants * 2
    assert letters[2]["resolved_at"] <= datetime.now(UTC)
    assert letters[2]["value"] == b'{"id": "b", "ts": 1, "n": 2, "other": 3}'
    assert (letters[1]["resolved_at"], letters[1]["code"]) == (None, "invalid_message")

    again = stream.replay().run(None)
    assert (again.passed, again.instants) == (0, [])
    assert stream.letters()[1]["attempts"] == 3


@pytest.mark.parametrize(
    "delete",
    [Tombstone(b"a"), {"id": "a", "_hoodie_is_deleted": True, "other": 1}],
    ids=["tombstone", "marked"],
)
def test_delete_without_an_ordering_value_spares_newer_rows_unless_confirmed(
    delete: Record | Tombstone,
) -> None:
    before = JsonStream(somewhere(), STRICT)
    before.write([{"id": "z", "ts": 1}, delete])
    before.write([{"id": "a", "ts": 9, "n": 9}])
    stream = JsonStream(before.location, tombstone_key="raw")
    for replay in (stream.replay().preview, stream.replay().run):
        result = replay(None)
        assert (result.passed, result.failed[0].column("code").to_pylist()) == (
            0,
            ["unordered_delete"],
        )
    assert stream.read()["a"] == {"id": "a", "ts": 9, "n": 9}
    assert (stream.letters()[1]["column"], stream.letters()[1]["resolved_at"]) == ("ts", None)
    assert stream.replay(overwrites_newer=True).preview(None).passed == 1
    assert stream.replay(overwrites_newer=True).run(None).passed == 1
    assert "a" not in stream.read()


def test_replayed_records_have_their_headers() -> None:
    columns = (HeaderColumn("tenant", "x-tenant"),)
    before = JsonStream(somewhere(), STRICT, header_columns=columns)
    before.write([{"id": "b", "ts": 1, "other": 3}], headers=[("x-tenant", b"a")])
    stream = JsonStream(before.location, header_columns=columns)
    assert stream.replay().run(None).passed == 1
    assert stream.read() == {"b": {"id": "b", "ts": 1, "tenant": "a"}}


def test_commit_of_a_replay_keeps_the_checkpoint_and_counts_letters() -> None:
    before = rejecting(somewhere())
    checkpoint = before.sink.checkpoint()
    result = JsonStream(before.location).replay().run(None)
    stream = JsonStream(before.location)
    assert stream.sink.checkpoint() == checkpoint
    table = stream.rows.table
    commits = {one.requested_at: one for one in table.timeline.completed()}
    extra = table.store.read_commit(commits[result.instants[0]]).extra_metadata
    assert extra[keys.REPLAYED] == "2"


def test_only_letters_that_match_a_condition_are_replayed() -> None:
    before = rejecting(somewhere())
    result = JsonStream(before.location).replay().run("offset < 3 and code = 'unknown_field'")
    assert (result.passed, result.failed[0].num_rows) == (1, 0)
    letters = before.letters()
    assert {offset for offset, row in letters.items() if row["resolved_at"]} == {2}
    assert letters[1]["attempts"] == 1


def test_records_may_request_columns() -> None:
    before = rejecting(somewhere())
    evolving = JsonStream(before.location, SchemaPolicy(unknown_fields="evolve"))
    assert evolving.replay().preview(None).passed == 2
    assert "other" not in evolving.schema()
    assert evolving.replay().run("offset = 2").passed == 1
    assert evolving.read()["b"] == {"id": "b", "ts": 1, "n": 2, "other": 3}


def test_rounds_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.hudi.replay.ROUND_LETTERS", 1)
    before = rejecting(somewhere())
    result = JsonStream(before.location).replay().run(None)
    assert (result.passed, len(result.instants), result.marked) == (2, 2, 0)
    assert [row["attempts"] for row in before.letters().values()] == [2, 2, 2]


class Killed(BaseException):
    """The process died: nothing is undone."""


@pytest.mark.parametrize("is_keyless", [False, True], ids=["upserts", "inserts"])
@pytest.mark.parametrize("step", ["_commit_letters", "_commit_rows"])
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_replay_that_was_killed_is_continued_without_doubling_a_row(
    monkeypatch: pytest.MonkeyPatch, step: str, is_after: bool, is_keyless: bool
) -> None:
    keyless = {"record_key": (), "index": None, "duplicates": Duplicates.ALLOW}
    settings: dict[str, Any] = keyless if is_keyless else {}
    before = rejecting(somewhere(), **settings)
    original = getattr(LetterReplay, step)

    def killed(self: LetterReplay, *arguments: object) -> object:
        if is_after:
            original(self, *arguments)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(LetterReplay, step, killed)
        patch.setattr(LetterReplay, "_abandon", lambda self: None)
        JsonStream(before.location, **settings).replay().run(None)
    stream = JsonStream(before.location, **settings)
    result = stream.replay().run(None)
    was_committed = is_after and step == "_commit_rows"
    assert (result.passed, result.marked) == ((0, 2) if was_committed else (2, 0))
    found = open_table(stream.location).scan(columns=["id", "n"]).to_table().to_pylist()
    expected = {("a", 1): 1, ("b", 2): 1} | ({("a", 9): 1} if is_keyless else {})
    assert Counter((row["id"], row["n"]) for row in found) == expected
    assert {offset for offset, row in stream.letters().items() if row["resolved_at"]} == {2, 3}


def test_claim_is_found_in_the_archived_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"table_type": TableType.COPY_ON_WRITE, "metadata_table": False}
    before = rejecting(somewhere(), **settings)
    original = LetterReplay._commit_rows

    def killed(self: LetterReplay, written: Any) -> str:
        original(self, written)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(LetterReplay, "_commit_rows", killed)
        JsonStream(before.location, **settings).replay().run(None)
    stream = JsonStream(before.location, **settings)
    for number in range(6):
        stream.write([{"id": "z", "ts": number}])
    archive(stream.rows.table, ArchivalPolicy(2, 3), None)
    claim = stream.letters()[2]["replayed_in"]
    assert open_table(before.location).timeline.find(claim) is None
    result = JsonStream(before.location, **settings).replay().run(None)
    assert (result.passed, result.marked) == (0, 2)
    again = JsonStream(before.location, **settings).replay().preview(None)
    assert (again.passed, again.marked) == (0, 0)


@pytest.mark.parametrize("how", ["rolled back", "restored away"])
def test_letters_are_open_again_if_the_commit_of_their_replay_is_undone(how: str) -> None:
    stream = rejecting(somewhere())
    (before,) = stream.rows.table.timeline.completed(*COMMITS)
    (replayed,) = JsonStream(stream.location).replay().run(None).instants
    table = open_table(stream.location)
    if how == "rolled back":
        roll_back_instant(table, replayed)
    else:
        restore_table(table, before.requested_at)
    assert "b" not in stream.read()
    after = JsonStream(stream.location)
    assert after.replay().preview(None).passed == 2
    assert after.replay().run("offset = 2").passed == 1
    assert after.read()["b"] == {"id": "b", "ts": 1, "n": 2}
    letter = after.letters()[3]
    assert (letter["replayed_in"], letter["resolved_at"]) == (None, None)
    assert after.replay().run(None).passed == 1


def test_resolved_claim_that_nothing_has_undone_is_not_void() -> None:
    """The history of the table may have been deleted; a replay would then write rows twice."""
    judge = ClaimJudge(JsonStream(somewhere()).rows.table)
    unknown = frozenset({"20200101000000000"})
    assert judge.judge(Claims(unresolved=frozenset(), resolved=unknown)).void == frozenset()
    both = judge.judge(Claims(unresolved=unknown, resolved=unknown))
    assert (both.committed, both.void) == (unknown, frozenset())
    assert judge.judge(Claims(unresolved=unknown, resolved=frozenset())).void == unknown


def test_letter_that_the_pipeline_reads_again_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead letters are committed before their batch, so the run may die in between."""
    location = somewhere()
    stream = JsonStream(location, STRICT)
    stream.write([{"id": "z", "ts": 1}])
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("sinks.hudi.batch_writer.BatchWriter._publish", raise_killed)
        patch.setattr("sinks.hudi.batch_writer.BatchWriter.abandon", lambda self: None)
        stream.write(RECORDS)
    resumed = JsonStream(location)
    result = resumed.replay().run(None)
    assert (result.passed, result.unread) == (0, 3)
    resumed.write(RECORDS)
    assert JsonStream(location).replay().run(None).unread == 0


def raise_killed(*_: object) -> None:
    raise Killed


def test_letters_of_other_topics_are_kept() -> None:
    before = rejecting(somewhere())
    other = JsonStream(before.location, topic="returns", identity="returns")
    result = other.replay().run(None)
    assert (result.passed, result.of_other_topics) == (0, 3)


SHARED = MultiWriter(clock_skew_ms=1)


@pytest.mark.parametrize("is_shared", [False, True], ids=["single writer", "several writers"])
def test_a_batch_between_the_begin_and_the_commit_of_a_replay_is_kept(
    monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    """The pipeline may be the only writer that it knows of; the replay never is."""
    pipeline = rejecting(somewhere(), multi_writer=SHARED if is_shared else None)
    stream = JsonStream(pipeline.location, multi_writer=SHARED)
    original = LetterReplay._write_rows
    batches: list[list[Record]] = [[{"id": "b", "ts": 7, "n": 7}, b"no JSON, too"]]

    def overtaken(self: LetterReplay, letters: pa.Table) -> Any:
        written = original(self, letters)
        if batches:
            pipeline.write(batches.pop())
        return written

    monkeypatch.setattr(LetterReplay, "_write_rows", overtaken)
    result = stream.replay().run(None)
    assert result.passed == 2
    assert stream.read()["b"] == {"id": "b", "ts": 7, "n": 7}
    assert {offset for offset, row in stream.letters().items() if row["resolved_at"]} == {2, 3}
    assert 5 in stream.letters()


def test_second_replay_is_refused_while_the_first_one_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = rejecting(somewhere())
    first, second = (JsonStream(before.location, multi_writer=SHARED) for _ in range(2))
    original, refused = LetterReplay._commit_rows, list[str]()

    def meanwhile(self: LetterReplay, written: Any) -> str:
        monkeypatch.setattr(LetterReplay, "_commit_rows", original)
        with pytest.raises(Refused, match="another replay is") as error:
            second.replay().run(None)
        refused.append(str(error.value))
        return original(self, written)

    monkeypatch.setattr(LetterReplay, "_commit_rows", meanwhile)
    assert first.replay().run(None).passed == 2
    assert refused
    assert second.replay().run(None).passed == 0


def test_replay_that_always_conflicts_names_the_conflict_and_counts_one_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = rejecting(somewhere(), multi_writer=SHARED)
    stream = JsonStream(pipeline.location, multi_writer=SHARED)
    original = LetterReplay._commit_rows

    def overtaken(self: LetterReplay, written: Any) -> str:
        pipeline.write([{"id": "b", "ts": 7}])
        return original(self, written)

    monkeypatch.setattr("sinks.hudi.replay._MAX_ATTEMPTS", 3)
    with monkeypatch.context() as patch:
        patch.setattr(LetterReplay, "_commit_rows", overtaken)
        with pytest.raises(WriteConflict, match=r"during 3 attempts .* file group") as raised:
            stream.replay().run(None)
    assert isinstance(raised.value.__cause__, WriteConflict)
    assert [row["attempts"] for row in stream.letters().values()] == [2, 2, 2]
    assert stream.replay().run("offset = 1").passed == 0
    assert [row["replayed_in"] for row in stream.letters().values()] == [None, None, None]
    assert stream.replay().run(None).passed == 2


@pytest.mark.parametrize(
    "conflict",
    [
        ResizePlanned(Instant("20260101000000000", Action.CLUSTERING, State.REQUESTED), "x"),
        BucketCountsChanged("memory://orders"),
    ],
    ids=lambda conflict: type(conflict).__name__,
)
def test_conflict_that_a_repetition_cannot_resolve_is_raised_at_once(
    monkeypatch: pytest.MonkeyPatch, conflict: WriteConflict
) -> None:
    replay, attempts = JsonStream(rejecting(somewhere()).location).replay(), list[object]()

    def conflicting(self: LetterReplay, written: object) -> str:
        attempts.append(written)
        raise conflict

    monkeypatch.setattr(LetterReplay, "_commit_rows", conflicting)
    with pytest.raises(type(conflict)):
        replay.run(None)
    assert len(attempts) == 1


def test_row_in_another_partition_is_refused_again() -> None:
    settings: dict[str, Any] = {
        "columns": {"id": "string", "ts": "bigint", "n": "int", "region": "string"},
        "partition_by": ("region",),
        "partition_change": PartitionChange.REJECT,
    }
    stream = JsonStream(somewhere(), **settings)
    stream.write([{"id": "a", "ts": 1, "region": "x"}])
    stream.write([{"id": "a", "ts": 2, "region": "y"}])
    assert stream.letters()[1]["code"] == "other_partition"
    result = JsonStream(stream.location, **settings).replay().run(None)
    assert result.passed == 0
    assert stream.letters()[1]["attempts"] == 2


def test_table_of_an_earlier_version_is_continued(tmp_path: Path) -> None:
    """Its columns end with ``stage``; the next commit adds the newer columns."""
    before = rejecting(StorageLocation(str(tmp_path / "orders")))
    letters = before.rejects.table.scan(columns=REJECTS_SCHEMA.names).to_table()
    place = before.rejects.table.location
    shutil.rmtree(tmp_path / "orders_rejects")
    earlier = pa.schema(list(REJECTS_SCHEMA)[:8])
    assert earlier.names[-1] == "stage"
    to = TableWriter(
        create_table(place, dead_letter_spec("rejects", by_day=False)),
        earlier,
        WriterSettings(INDEX),
    )
    changes = WITHOUT_DAYS.to_changes(Rejects(letters.cast(REJECTS_SCHEMA)))
    kept = [name for name in changes.column_names if name not in REJECTS_SCHEMA.names[8:]]
    writes = BucketWriter(to.begin(), to.assigner.assign_file_groups())
    to.commit(writes.write(Bucket("", 0), [changes.select(kept)]), {})
    assert list_letters(open_table(place))[0]["code"] is None

    stream = JsonStream(before.location)
    stream.write([b"still no JSON"])
    found = stream.letters()
    assert (found[1]["attempts"], found[4]["attempts"]) == (None, 1)
    assert stream.replay().run(None).passed == 2
    assert [found["attempts"] for found in stream.letters().values()] == [2, 2, 2, 2]
