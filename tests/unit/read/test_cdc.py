from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from uuid import uuid4

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakemark.config import keys
from lakemark.config.table_properties import TableProperties, TableType
from lakemark.errors import InvalidConfig
from lakemark.model.changes import ChangeKind
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.operations.metadata_table import drop_metadata_table
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.read import cdc
from lakemark.read.cdc import Inference
from lakemark.read.instant_range import InstantRange
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.content import encode_commit
from lakemark.write import file_group_write, new_log_file
from lakemark.write.partitioner import divide
from tests.depth import examples
from tests.tables import Row, changes, commit, make, writer
from tests.unit.read.histories import (
    KEYS,
    Batch,
    History,
    Service,
    batches,
    compacted,
    live,
    outcome,
    write,
)

Reported = tuple[str, str, int | None, int | None]


@settings(max_examples=examples(12), deadline=None)
@given(batches())
def test_changes_of_logs_equal_the_model(sent: list[Batch]) -> None:
    history = write(sent)
    found = Counter(_reported(history, InstantRange.of("earliest")))
    assert found == Counter(_model(history))


@settings(max_examples=examples(12), deadline=None)
@given(compacted())
def test_compactions_do_not_alter_reported_changes(steps: list[Batch | Service]) -> None:
    history = write(steps)
    assert Counter(_reported(history, InstantRange.of("earliest"))) == Counter(_model(history))


@settings(max_examples=examples(12), deadline=None)
@example(sent=[[Row(key) for key in KEYS], [Row("a", 2, 1), Row("a", 1, 2)]], version=WRITTEN[0])
@example(sent=[[Row(key) for key in KEYS], [Row("a", 2, 1), Row("a", 1, 2)]], version=WRITTEN[-1])
@given(sent=batches(), version=st.sampled_from(WRITTEN))
def test_logs_of_one_commit_are_compared_together(
    sent: list[Batch], version: FormatVersion
) -> None:
    """A key may be in several logs of a commit, which is one change of its row."""
    history = _in_small_logs(sent, version)
    everything = InstantRange.of("earliest")
    assert Counter(_reported(history, everything)) == Counter(_model(history))
    table = history.table
    plan = cdc.plan(table.view(), table.store, _with_cdc(table), everything)
    typed = cdc.TypedChanges(history.reader.schema, lambda rows: rows.column("id"))
    rows: dict[str, int] = {}
    for batch in cdc.read(plan, history.reader, typed):
        for change in batch.to_pylist():
            image = change["before"] if change["op"] == "d" else change["after"]
            assert rows.pop(image["id"], None) == (change["before"] or {}).get("v")
            if change["op"] != "d":
                rows[image["id"]] = image["v"]
    assert rows == live(outcome(sent))


def test_cleaned_slice_is_refused_by_name() -> None:
    first, second, third = ([Row("a", ts)] for ts in range(3))
    history = write([first, second, Service.PLAN_COMPACTION, third, Service.FINISH_COMPACTION])
    (group,) = history.table.view().file_groups()
    planned, rewritten = group.slices
    assert planned.base is not None and rewritten.base is not None
    last = InstantRange.of(history.instants[1].requested_at)
    assert [reported[0] for reported in _reported(history, last)] == ["u"]

    again = _without(history, [planned.base.path, *(log.path for log in planned.logs)])
    with pytest.raises(InvalidConfig, match=rewritten.base.path):
        _reported(again, last)


@settings(max_examples=examples(8), deadline=None)
@given(batches())
def test_ranges_of_single_commits_return_the_same_changes(sent: list[Batch]) -> None:
    history = write(sent)
    times = ["000", *(instant.requested_at for instant in history.instants)]
    one_by_one = Counter[Reported]()
    for begin, end in pairwise(times):
        one_by_one += Counter(_reported(history, InstantRange.of(begin, end)))
    assert one_by_one == Counter(_reported(history, InstantRange.of("earliest")))


def test_emptied_file_reports_its_rows_as_deleted() -> None:
    history = _emptied()
    table = history.table
    plan = cdc.plan(table.view(), table.store, _with_cdc(table), InstantRange.of("earliest"))
    assert {split.inference for split in plan.splits} == {
        Inference.BASE_FILE_INSERT,
        Inference.BASE_FILE_DELETE,
    }
    last = history.instants[-1].requested_at
    deleted = [
        reported
        for reported in _reported(history, InstantRange.of("earliest"))
        if reported[0] == "d"
    ]
    assert sorted(deleted) == [("d", last, 1, None), ("d", last, 2, None)]


def test_cleaned_version_of_a_file_is_refused_by_name() -> None:
    history = _emptied()
    oldest = [group.slices[0].base for group in history.table.view().file_groups()]
    again = _without(history, [base.path for base in oldest if base is not None])
    with pytest.raises(InvalidConfig, match=r"was removed, so the changes of .* begin with"):
        _reported(again, InstantRange.of("earliest"))


def test_cdc_range_that_ends_after_a_pending_commit_is_refused() -> None:
    table = write([[Row("a")]]).table
    pending = writer(table.storage)
    pending.begin()
    table.refresh()
    known = InstantRange.of("earliest", pending.pending_instant)
    with pytest.raises(InvalidConfig, match=f"{pending.pending_instant}.* is pending"):
        cdc.plan(table.view(), table.store, _with_cdc(table), known)


def test_cdc_query_of_table_without_cdc_is_refused() -> None:
    table = write([[Row("a")]]).table
    with pytest.raises(InvalidConfig, match="use an incremental query, or create a table"):
        cdc.plan(table.view(), table.store, table.properties, InstantRange.of("earliest"))
    odd = TableProperties({**_with_cdc(table).values, keys.CDC_LOGGING_MODE: "ALL"})
    with pytest.raises(InvalidConfig, match=r"ALL.*known: OP_KEY_ONLY"):
        cdc.plan(table.view(), table.store, odd, InstantRange.of("earliest"))


def _without(history: History, paths: Sequence[str]) -> History:
    """Delete these files, and return the history with the table opened again."""
    drop_metadata_table(history.table)  # it does not know of the deletion below
    history.table.storage.delete(paths)
    return replace(history, table=open_table(history.table.location))


def _in_small_logs(sent: list[Batch], version: FormatVersion) -> History:
    """Commit each batch, with a log for each of its changes, even to the same key."""
    location = StorageLocation(f"memory://{uuid4().hex}/lake")
    storage = open_storage(location)
    make(storage, version=version)
    to, instants = writer(storage), []
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr(new_log_file, "_PIECE_BYTES", 1)
        limits.setattr(file_group_write, "MAX_BLOCK_BYTES", 1)
        for batch in sent:
            context = replace(to.begin(), max_log_bytes=1).use_storage(storage)
            placed = to.assigner.assign(context, made := changes(batch))
            stats = [
                stat
                for bucket, part in divide(made, placed.numbers)
                for stat in file_group_write.write_file_group(
                    context,
                    placed.assignment.task(bucket),
                    [part.slice(row, 1) for row in range(part.num_rows)],
                )
            ]
            instants.append(to.commit(stats, {}))
    return History(open_table(location), sent, instants)


def _emptied() -> History:
    """Create a copy-on-write table whose last commit deletes all rows, as Apache Hudi does it."""
    location = StorageLocation(f"memory://{uuid4().hex}/emptied")
    storage = open_storage(location)
    make(storage, TableType.COPY_ON_WRITE)
    to = writer(storage)
    inserted = [Row("a", v=1), Row("b", v=2)]
    deleted = [Row(row.id, 1, kind=ChangeKind.DELETE) for row in inserted]
    instants = [commit(to, rows) for rows in (inserted, deleted)]
    return History(_as_delete(storage, location), [inserted, deleted], instants)


def _as_delete(storage: Storage, location: StorageLocation) -> OpenTable:
    table = open_table(location)
    last = table.timeline.completed()[-1]
    metadata = replace(table.store.read_commit(last), operation="DELETE")
    storage.put(table.store.path_of(last), encode_commit(last.action, metadata))
    return open_table(location)


def _with_cdc(table: OpenTable) -> TableProperties:
    return TableProperties({**table.properties.values, keys.CDC_ENABLED: "true"})


def _reported(history: History, instant_range: InstantRange) -> list[Reported]:
    """Run a CDC query; return the operation, commit, and both payloads of each change."""
    table = history.table
    plan = cdc.plan(table.view(), table.store, _with_cdc(table), instant_range)
    moved: cdc.CdcPlan = pickle.loads(pickle.dumps(plan))
    rows = [row for batch in cdc.read(moved, history.reader) for row in batch.to_pylist()]
    return [
        (row["op"], row["ts_ms"], _payload(row["before"]), _payload(row["after"])) for row in rows
    ]


def _payload(image: str | None) -> int | None:
    return None if image is None else int(json.loads(image)["v"])


def _model(history: History) -> list[Reported]:
    """Return the expected changes.

    A delete in a log is reported even if it is late.
    """
    reported: list[Reported] = []
    for count, instant in enumerate(history.instants):
        older = outcome(history.batches[:count])
        for key, row in outcome([history.batches[count]]).items():
            before = older.get(key)
            alive = before if before and before.kind is ChangeKind.UPSERT else None
            at = instant.requested_at
            if row.kind is not ChangeKind.UPSERT:
                reported += [("d", at, alive.v, None)] if alive else []
            elif alive is None:
                reported.append(("i", at, None, row.v))
            elif row.ts >= alive.ts:
                reported.append(("u", at, alive.v, row.v))
    return reported
