"""A version change of lakemark writes the same properties as one of Apache Hudi."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.config import keys
from lakemark.execution.runner import LocalRunner
from lakemark.model.format_version import FormatVersion
from lakemark.operations.change_version import change_table_version
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation
from tests.interop.oracle import ApacheTable, Oracle

pytestmark = pytest.mark.oracle

ROWS = pa.table(
    {
        "id": ["a", "b"],
        "region": ["r0", "r1"],
        "at": [1767225600, 1767312000],
        "ts": [1, 2],
        "_change_operation_type": ["c", "c"],
        "_event_bin_file": ["f1", "f1"],
        "_event_pos": [1, 2],
        "_event_seq": ["f1.1", "f1.2"],
        "_event_lsn": [1, 2],
        "Op": ["I", "I"],
    }
)
_MODEL = "org.apache.hudi.common.model."
_DEBEZIUM = f"{_MODEL}debezium."
_COMPARED = (
    keys.PARTITION_FIELDS,
    keys.KEY_GENERATOR_TYPE,
    keys.KEY_GENERATOR_CLASS,
    keys.MERGE_MODE,
    keys.MERGE_STRATEGY_ID,
    keys.PAYLOAD_CLASS,
    keys.LEGACY_PAYLOAD_CLASS,
    keys.PARTIAL_UPDATE_MODE,
    keys.DELETE_FIELD,
    keys.DELETE_MARKER,
    keys.UNAVAILABLE_VALUE,
    keys.ORDERING_FIELDS,
    keys.PRECOMBINE_FIELD,
    keys.INITIAL_VERSION,
)


def merging_with(payload: str, ordering: str) -> ApacheTable:
    named = {
        "hoodie.datasource.write.payload.class": payload,
        "hoodie.compaction.payload.class": payload,
        "hoodie.datasource.write.precombine.field": ordering,
    }
    return ApacheTable("t", ["id"], ["region"], [ordering], version=6, extra=named)


def keyed_by(generator: str, *partition: str) -> ApacheTable:
    named = {
        "hoodie.datasource.write.keygenerator.class": f"org.apache.hudi.keygen.{generator}",
        "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
        "hoodie.keygen.timebased.output.dateformat": "yyyyMMdd",
        "hoodie.datasource.write.precombine.field": "ts",
    }
    return ApacheTable("t", ["id"], partition, ["ts"], version=6, extra=named)


@pytest.mark.parametrize(
    ("table", "goes_back"),
    [
        # Apache Hudi's procedure fails on the two ordering columns of MySQL
        (merging_with(f"{_DEBEZIUM}MySqlDebeziumAvroPayload", "_event_seq"), False),
        (merging_with(f"{_DEBEZIUM}PostgresDebeziumAvroPayload", "_event_lsn"), True),
        (merging_with(f"{_MODEL}AWSDmsAvroPayload", "ts"), True),
        (keyed_by("CustomKeyGenerator", "region:SIMPLE", "at:TIMESTAMP"), True),
        (keyed_by("TimestampBasedKeyGenerator", "at"), True),
    ],
    ids=["mysql", "postgres", "dms", "custom", "timestamp"],
)
def test_version_change_of_both_writes_the_same_properties(
    oracle: Oracle, tmp_path: Path, table: ApacheTable, goes_back: bool
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    oracle.write(theirs, ROWS, table)
    shutil.copytree(theirs, ours)
    upgrading = {"hoodie.write.auto.upgrade": "true"}
    oracle.write(theirs, ROWS, replace(table, version=9), options=upgrading)
    change_table_version(opened(ours), FormatVersion.V9, LocalRunner(1))
    assert compared(ours) == compared(theirs)
    if goes_back:
        with oracle.named("t", theirs):
            oracle.query("call downgrade_table(table => 't', to_version => 'EIGHT')")
        change_table_version(opened(ours), FormatVersion.V8, LocalRunner(1))
        assert compared(ours) == compared(theirs)


def opened(path: Path) -> OpenTable:
    return open_table(StorageLocation(str(path)))


def compared(path: Path) -> dict[str, str]:
    values = opened(path).properties.values
    return {key: values[key] for key in _COMPARED if key in values}
