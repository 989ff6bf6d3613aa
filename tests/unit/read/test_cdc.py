from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from uuid import uuid4

import pytest
from hypothesis import given, settings

from lakemark.config import keys
from lakemark.config.table_properties import TableProperties, TableType
from lakemark.errors import InvalidConfig
from lakemark.model.changes import ChangeKind
from lakemark.operations.metadata_table import drop_metadata_table
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.read import cdc
from lakemark.read.cdc import Inference
from lakemark.read.instant_range import Span
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.timeline_store import commit_content
from tests.depth import examples
from tests.tables import Row, commit, make, writer
from tests.unit.read.histories import Batch, History, Service, batches, compacted, outcome, write

Told = tuple[str, str, int | None, int | None]


@settings(max_examples=examples(12), deadline=None)
@given(batches())
def test_logs_tell_what_they_changed(sent: list[Batch]) -> None:
    history = write(sent)
    found = Counter(_told(history, Span.of("earliest")))
    assert found == Counter(_model(history))


@settings(max_examples=examples(12), deadline=None)
@given(compacted())
def test_compactions_change_nothing_that_is_told(steps: list[Batch | Service]) -> None:
    history = write(steps)
    assert Counter(_told(history, Span.of("earliest"))) == Counter(_model(history))


def test_a_slice_that_was_cleaned_after_its_compaction_is_named() -> None:
    first, second, third = ([Row("a", ts)] for ts in range(3))
    history = write([first, second, Service.PLAN_COMPACTION, third, Service.FINISH_COMPACTION])
    (group,) = history.table.view().file_groups()
    planned, rewritten = group.slices
    assert planned.base is not None and rewritten.base is not None
    last = Span.of(history.instants[1].requested_at)
    assert [told[0] for told in _told(history, last)] == ["u"]

    again = _without(history, [planned.base.path, *(log.path for log in planned.logs)])
    with pytest.raises(InvalidConfig, match=rewritten.base.path):
        _told(again, last)


@settings(max_examples=examples(8), deadline=None)
@given(batches())
def test_commits_told_one_by_one_are_told_alike(sent: list[Batch]) -> None:
    history = write(sent)
    times = ["000", *(instant.requested_at for instant in history.instants)]
    one_by_one = Counter[Told]()
    for begin, end in pairwise(times):
        one_by_one += Counter(_told(history, Span.of(begin, end)))
    assert one_by_one == Counter(_told(history, Span.of("earliest")))


def test_a_file_that_lost_all_its_rows_tells_them_deleted() -> None:
    history = _emptied()
    table = history.table
    plan = cdc.plan(table.view(), table.store, _with_cdc(table), Span.of("earliest"))
    assert {split.inference for split in plan.splits} == {
        Inference.BASE_FILE_INSERT,
        Inference.BASE_FILE_DELETE,
    }
    last = history.instants[-1].requested_at
    deleted = [told for told in _told(history, Span.of("earliest")) if told[0] == "d"]
    assert sorted(deleted) == [("d", last, 1, None), ("d", last, 2, None)]


def test_a_version_that_was_cleaned_is_named() -> None:
    history = _emptied()
    oldest = [group.slices[0].base for group in history.table.view().file_groups()]
    again = _without(history, [base.path for base in oldest if base is not None])
    with pytest.raises(InvalidConfig, match=r"was removed, so the changes of .* begin with"):
        _told(again, Span.of("earliest"))


def test_changes_are_told_of_tables_that_keep_them_alone() -> None:
    table = write([[Row("a")]]).table
    with pytest.raises(InvalidConfig, match="use an incremental query, or let Apache Hudi create"):
        cdc.plan(table.view(), table.store, table.properties, Span.of("earliest"))
    odd = TableProperties({**_with_cdc(table).values, keys.CDC_LOGGING_MODE: "ALL"})
    with pytest.raises(InvalidConfig, match=r"ALL.*known: OP_KEY_ONLY"):
        cdc.plan(table.view(), table.store, odd, Span.of("earliest"))


def _without(history: History, paths: Sequence[str]) -> History:
    """The same, opened again when these files were cleaned."""
    drop_metadata_table(history.table)  # which knows nothing of what is done by hand
    history.table.storage.delete(paths)
    return replace(history, table=open_table(history.table.location))


def _emptied() -> History:
    """A copy-on-write table whose last commit deleted everything, as Apache's DELETE says it."""
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
    storage.put(table.store.path_of(last), commit_content(last.action, metadata))
    return open_table(location)


def _with_cdc(table: OpenTable) -> TableProperties:
    return TableProperties({**table.properties.values, keys.CDC_ENABLED: "true"})


def _told(history: History, span: Span) -> list[Told]:
    """Operation, commit, and the payloads before and after."""
    table = history.table
    plan = cdc.plan(table.view(), table.store, _with_cdc(table), span)
    moved: cdc.CdcPlan = pickle.loads(pickle.dumps(plan))
    rows = [row for batch in cdc.read(moved, history.reader) for row in batch.to_pylist()]
    return [
        (row["op"], row["ts_ms"], _payload(row["before"]), _payload(row["after"])) for row in rows
    ]


def _payload(image: str | None) -> int | None:
    return None if image is None else int(json.loads(image)["v"])


def _model(history: History) -> list[Told]:
    """Commit by commit, key by key; a delete in a log counts even if it came late."""
    told: list[Told] = []
    for count, instant in enumerate(history.instants):
        older = outcome(history.batches[:count])
        for key, row in outcome([history.batches[count]]).items():
            before = older.get(key)
            alive = before if before and before.kind is ChangeKind.UPSERT else None
            at = instant.requested_at
            if row.kind is not ChangeKind.UPSERT:
                told += [("d", at, alive.v, None)] if alive else []
            elif alive is None:
                told.append(("i", at, None, row.v))
            elif row.ts >= alive.ts:
                told.append(("u", at, alive.v, row.v))
    return told
