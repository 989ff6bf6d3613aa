"""Time travel, incremental and CDC queries return the rows of Apache Hudi, with meta columns."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakemark.config import keys
from lakemark.config.table_properties import LoggingMode, TableProperties
from lakemark.errors import CorruptData, InvalidConfig
from lakemark.log.data_block import encode_avro
from lakemark.log.log_block import BlockType, HeaderKey, encode
from lakemark.model.action import Action
from lakemark.model.meta_columns import COMMIT_TIME, PARTITION_PATH, RECORD_KEY
from lakemark.operations.open_table import OpenTable
from lakemark.read import cdc, incremental
from lakemark.read.cdc.logged_changes import read_logged_changes
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.read.instant_range import InstantRange
from lakemark.read.queries import Snapshot
from lakemark.storage.properties_file import replace_properties
from tests import plans
from tests.golden.golden_table import (
    GoldenTable,
    Row,
    plain_types,
    sorted_rows,
    unpack,
)
from tests.golden.shared_tables import SharedTables

Plan = TypeVar("Plan")
Key = tuple[str, str]

_ARCHIVED = ["v6_mor_archived", "v8_mor_archived", "v9_mor_archived"]
_REPLAYED = [
    "v6_mor_compacted",
    "v6_mor_partial_update_payload",
    "v8_mor_commit_time",
    "v9_mor_insert_overwrite",
    "v9_mor_rollback",
]
_CUT_INTO_SPANS = [
    "v6_mor_compacted",
    "v8_mor_parquet_bucket",
    "v9_cow_clustered",
    "v9_mor_archived",
    "v9_mor_insert_overwrite",
    "v9_mor_savepoint_restore",
]
#: A late delete of this key changed nothing, but a log counts as deleting each key that it names.
_DELETED_LATE = ("r2", "k0029")


def test_savepoint_of_apache_has_the_rows_of_the_files_that_it_keeps(
    shared_tables: SharedTables,
) -> None:
    golden = shared_tables["v9_cow_savepoint"]
    (savepoint,) = golden.table.timeline.completed(Action.SAVEPOINT)
    retained = golden.table.store.read_clean(golden.table.timeline.completed(Action.CLEAN)[-1])
    assert retained is not None and savepoint.requested_at < retained.earliest_retained
    files = golden.table.store.read_savepoint(savepoint).files
    parts = [
        pq.read_table(golden.root / partition / name, partitioning=None)
        for partition, names in files.items()
        for name in names
    ]
    rows = golden.table.scan(Snapshot(savepoint.requested_at)).to_table()
    kept = pa.concat_tables(parts).select(rows.column_names)
    assert sorted_rows(rows) == sorted_rows(kept)


def test_time_travel_returns_the_schema_of_that_time(shared_tables: SharedTables) -> None:
    golden = shared_tables["v9_mor_evolved"]
    first, last = (i.requested_at for i in golden.view.timeline.completed())
    then, now = (golden.table.scan(Snapshot(as_of=i)).schema for i in (first, last))
    assert now == golden.table.schema
    assert set(then.names) < set(now.names)


@pytest.mark.parametrize("name", [*_CUT_INTO_SPANS, *_ARCHIVED[:2]])
def test_incremental_query_from_the_earliest_commit_returns_the_snapshot(
    shared_tables: SharedTables, name: str
) -> None:
    golden = shared_tables[name]
    plan = incremental.plan(golden.view, golden.table.store, InstantRange.of("earliest"))
    assert plan.is_full_scan == (name in _ARCHIVED)
    _assert_same(_increment(golden, plan), golden.expected("snapshot"))


@pytest.mark.parametrize("name", _CUT_INTO_SPANS)
def test_no_row_is_missing_between_two_consecutive_spans(
    shared_tables: SharedTables, name: str
) -> None:
    golden = shared_tables[name]
    commit_of = _commits_of_keys(golden.expected("snapshot"))
    commits = [i for i in golden.view.timeline.completed() if i.action.is_write]
    is_old = golden.table.version.timeline_layout == 1
    bounds = ["000", *(i.requested_at if is_old else str(i.completed_at) for i in commits)]
    for begin, end in pairwise(bounds):
        span = InstantRange.of(begin, end)
        plan = incremental.plan(golden.view, golden.table.store, span)
        found = _commits_of_keys(_increment(golden, plan))
        assert set(found.values()) <= set(plan.instants)
        still_there = {k: at for k, at in commit_of.items() if at in plan.instants}
        assert still_there.items() <= found.items()


@pytest.mark.parametrize("name", ["v6_mor_avro_bucket", "v9_mor_compacted"])
def test_incremental_query_scans_the_whole_table_if_files_were_removed(
    tmp_path: Path, name: str
) -> None:
    golden = unpack(name, tmp_path)
    begin = golden.queries["incremental"]["hoodie.datasource.read.begin.instanttime"]
    plan = incremental.plan(golden.view, golden.table.store, InstantRange.of(begin))
    written = golden.table.store.read_commit(golden.view.timeline.completed()[-2]).write_stats
    assert written[0].path is not None
    (golden.root / written[0].path).unlink()

    golden = _opened_again(golden)
    with pytest.raises(InvalidConfig, match="archived or cleaned"):
        incremental.plan(
            golden.view, golden.table.store, InstantRange.of(begin), may_scan_fully=False
        )
    scan = incremental.plan(golden.view, golden.table.store, InstantRange.of(begin))
    assert scan.is_full_scan
    assert scan.instants == plan.instants


def test_removed_file_is_not_needed_if_a_later_commit_of_the_span_rewrote_it(
    tmp_path: Path,
) -> None:
    golden = unpack("v9_cow_simple", tmp_path)
    begin = golden.queries["incremental"]["hoodie.datasource.read.begin.instanttime"]
    span = InstantRange.of(begin)
    instants = incremental.plan(golden.view, golden.table.store, span).instants
    written = golden.table.store.read_commit(golden.view.timeline.completed()[-2]).write_stats
    assert written[0].path is not None
    (golden.root / written[0].path).unlink()

    golden = _opened_again(golden)
    plan = incremental.plan(golden.view, golden.table.store, span, may_scan_fully=False)
    assert (plan.instants, plan.is_full_scan) == (instants, False)
    snapshot = golden.expected("snapshot")
    in_span = pc.is_in(snapshot[COMMIT_TIME], value_set=pa.array(instants))
    _assert_same(_increment(golden, plan), snapshot.filter(in_span))


@pytest.mark.parametrize("name", _ARCHIVED)
def test_span_includes_archived_commits_that_are_later_than_its_begin(
    shared_tables: SharedTables, name: str
) -> None:
    golden = shared_tables[name]
    archived = golden.table.store.load_archived().instants()
    oldest = next(i for i in archived if i.action.is_write)
    is_old = golden.table.version.timeline_layout == 1
    begin = oldest.requested_at if is_old else str(oldest.completed_at)
    plan = incremental.plan(golden.view, golden.table.store, InstantRange.of(begin))
    later = {i.requested_at for i in archived if i.action.is_write} - {oldest.requested_at}
    assert later <= set(plan.instants)
    assert oldest.requested_at not in plan.instants
    with pytest.raises(InvalidConfig, match="archived"):
        cdc.plan(golden.view, golden.table.store, _with_cdc(golden), InstantRange.of(begin))


@pytest.mark.parametrize("name", _REPLAYED)
def test_replayed_changes_give_the_snapshot(shared_tables: SharedTables, name: str) -> None:
    golden = shared_tables[name]
    plan = cdc.plan(golden.view, golden.table.store, _with_cdc(golden), InstantRange.of("earliest"))
    state: dict[Key, str] = {}
    # An overwrite deletes and inserts at the same time.
    changes = sorted(_changes(golden, plan), key=lambda c: (c["ts_ms"], c["op"] != "d"))
    for change in changes:
        key = _key_of(change)
        before = state.pop(key, None)
        assert (before is None) == (change["op"] == "i")
        assert change["before"] is None or before == json.loads(change["before"])[COMMIT_TIME]
        if change["after"] is not None:
            state[key] = json.loads(change["after"])[COMMIT_TIME]
    snapshot = _commits_of_keys(golden.expected("snapshot"))
    assert snapshot.keys() - state.keys() <= {_DELETED_LATE}
    assert state.items() <= snapshot.items()


@pytest.mark.parametrize("mode", [LoggingMode.OP_KEY_ONLY, LoggingMode.DATA_BEFORE])
def test_images_that_were_not_logged_are_read_from_file_slices(
    tmp_path: Path, mode: LoggingMode
) -> None:
    golden = unpack("v9_cow_cdc", tmp_path)
    plan = cdc.plan(golden.view, golden.table.store, golden.properties, InstantRange.of("000"))
    whole = Counter(_comparable(change) for change in _changes(golden, plan))
    _log_less(golden, plan, mode)

    golden = _opened_again(golden)
    plan = cdc.plan(
        golden.view, golden.table.store, _with_cdc(golden, mode), InstantRange.of("000")
    )
    assert Counter(_comparable(change) for change in _changes(golden, plan)) == whole


def test_logged_changes_of_another_logging_mode_are_an_error(shared_tables: SharedTables) -> None:
    golden = shared_tables["v9_cow_cdc"]
    properties = _with_cdc(golden, LoggingMode.OP_KEY_ONLY)
    plan = cdc.plan(golden.view, golden.table.store, properties, InstantRange.of("000"))
    with pytest.raises(CorruptData, match="record_key"):
        _changes(golden, plan)


def test_table_without_cdc_is_refused(shared_tables: SharedTables) -> None:
    golden = shared_tables["v9_cow_simple"]
    with pytest.raises(InvalidConfig, match=keys.CDC_ENABLED):
        cdc.plan(golden.view, golden.table.store, golden.properties, InstantRange.of("000"))
    with pytest.raises(InvalidConfig, match=r"without a \.cdc file"):
        cdc.plan(golden.view, golden.table.store, _with_cdc(golden), InstantRange.of("000"))


def _opened_again(golden: GoldenTable) -> GoldenTable:
    """Open the table without its metadata table, which does not list files changed by hand."""
    listed = golden.properties.without_metadata_table()
    replace_properties(golden.storage, golden.properties, listed, lambda: None)
    return replace(golden, table=OpenTable(golden.storage, listed))


def _reader(golden: GoldenTable) -> FileGroupReader:
    return golden.table.scan().reader


def _increment(golden: GoldenTable, plan: incremental.IncrementalPlan) -> pa.Table:
    reader = _reader(golden)
    return pa.Table.from_batches(plans.read(plan, reader), reader.schema)


def _changes(golden: GoldenTable, plan: cdc.CdcPlan) -> list[Row]:
    return [row for batch in cdc.read(plan, _reader(golden)) for row in batch.to_pylist()]


def _with_cdc(
    golden: GoldenTable, mode: LoggingMode = LoggingMode.DATA_BEFORE_AFTER
) -> TableProperties:
    changed = {keys.CDC_ENABLED: "true", keys.CDC_LOGGING_MODE: mode}
    return TableProperties({**golden.properties.values, **changed})


def _log_less(golden: GoldenTable, plan: cdc.CdcPlan, mode: LoggingMode) -> None:
    """Rewrite the logged changes as another logging mode would have written them."""
    image: Row = {"type": ["null", _image_schema(golden)], "name": "before", "default": None}
    texts: list[Row] = [{"type": ["null", "string"], "name": name} for name in ("op", "record_key")]
    fields = [*texts, image] if mode is LoggingMode.DATA_BEFORE else texts
    names = [str(field["name"]) for field in fields]
    schema: Row = {"type": "record", "name": "CDC", "fields": fields}
    for split in plan.splits:
        for log in split.logs:
            kept = read_logged_changes(golden.storage, [log], LoggingMode.DATA_BEFORE_AFTER)
            record_key = pc.coalesce(*(pc.struct_field(kept[c], "id") for c in ("after", "before")))
            rows = pa.table(
                [kept["op"], record_key, kept["before"]], ["op", "record_key", "before"]
            )
            header = {HeaderKey.INSTANT_TIME: split.instant, HeaderKey.SCHEMA: json.dumps(schema)}
            content = encode_avro(rows.select(names), schema)
            (golden.root / log.path).write_bytes(encode(BlockType.CDC_DATA, header, content))


def _image_schema(golden: GoldenTable) -> object:
    """Return the Avro schema of an image, without logical types."""
    metadata = golden.table.newest_metadata()
    assert metadata is not None
    stored = metadata.extra_metadata[keys.SCHEMA]
    return json.loads(stored, object_hook=_without_logical_type)


def _without_logical_type(part: Row) -> Row:
    return {name: value for name, value in part.items() if name != "logicalType"}


def _comparable(change: Row) -> tuple[str, ...]:
    """Return the parts of a change that both dialects print in the same way."""
    return (change["op"], change["ts_ms"], _plainly(change["before"]), _plainly(change["after"]))


def _plainly(image: str | None) -> str:
    record = json.loads(image or "null") or {}
    names = ("id", "ts", "qty", "note", "seen", "day", "tags", "attrs", "pos", "ok")
    return json.dumps({name: record.get(name) for name in names})


def _key_of(change: Row) -> Key:
    record = json.loads(change["after"] or change["before"])
    return record[PARTITION_PATH], record[RECORD_KEY]


def _commits_of_keys(rows: pa.Table) -> dict[Key, str]:
    columns = (rows[name].to_pylist() for name in (PARTITION_PATH, RECORD_KEY, COMMIT_TIME))
    return {(partition, key): commit for partition, key, commit in zip(*columns, strict=True)}


def _assert_same(found: pa.Table, expected: pa.Table) -> None:
    assert plain_types(found.schema) == plain_types(expected.schema)
    assert sorted_rows(found) == sorted_rows(expected)
