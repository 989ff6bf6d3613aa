from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from lakemark.config import keys
from lakemark.config.merge_settings import MergeSettings, PartialUpdateMode, Payload, merge_settings
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import MergeMode, TableProperties
from lakemark.errors import Unsupported
from lakemark.merge.record_merger import commit_time_merger, event_time_merger
from lakemark.merge.table_merger import table_merger
from lakemark.model.changes import CHANGE_KIND_FIELD, ChangeKind, DeleteMarker
from lakemark.model.meta_columns import RECORD_KEY

MODELS = "org.apache.hudi.common.model."
EVENT_TIME_STRATEGY = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
PAYLOAD_STRATEGY = "00000000-0000-0000-0000-000000000000"
OWN_STRATEGY = "1897ef5f-18bc-4557-939c-9d6a8afd1519"


def table(version: int, ordering: str = "ts", **values: str) -> TableProperties:
    named = {getattr(keys, name): value for name, value in values.items()}
    return TableProperties(
        {
            keys.TABLE_NAME: "trips",
            keys.TABLE_VERSION: str(version),
            keys.ORDERING_FIELDS: ordering,
            **named,
        }
    )


EVENT = MergeSettings(mode=MergeMode.EVENT_TIME, ordering_fields=("ts",))
COMMIT = MergeSettings(mode=MergeMode.COMMIT_TIME, ordering_fields=("ts",))


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (table(9), EVENT),
        (table(9, MERGE_MODE="COMMIT_TIME_ORDERING"), COMMIT),
        (table(9, ordering="", MERGE_MODE="EVENT_TIME_ORDERING"), MergeSettings(mode=COMMIT.mode)),
        (table(6), EVENT),
        (table(6, ordering=""), MergeSettings(mode=COMMIT.mode)),
        (table(6, PAYLOAD_CLASS=f"{MODELS}DefaultHoodieRecordPayload"), EVENT),
        (table(6, PAYLOAD_CLASS=f"{MODELS}EventTimeAvroPayload"), EVENT),
        (table(6, PAYLOAD_CLASS=f"{MODELS}OverwriteWithLatestAvroPayload"), COMMIT),
        (table(6, OLD_MERGE_STRATEGY_ID=EVENT_TIME_STRATEGY), EVENT),
        (table(8, MERGE_MODE="CUSTOM", MERGE_STRATEGY_ID=EVENT_TIME_STRATEGY), EVENT),
        (
            table(
                8,
                MERGE_MODE="COMMIT_TIME_ORDERING",
                PAYLOAD_CLASS=f"{MODELS}DefaultHoodieRecordPayload",
            ),
            COMMIT,
        ),
    ],
)
def test_merge_mode_is_inferred_as_in_apache_hudi(
    properties: TableProperties, expected: MergeSettings
) -> None:
    assert merge_settings(properties) == expected


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("payload", list(Payload))
def test_payload_has_the_same_meaning_in_every_version(version: int, payload: Payload) -> None:
    properties = table(
        version,
        MERGE_MODE="CUSTOM",
        MERGE_STRATEGY_ID=PAYLOAD_STRATEGY,
        PAYLOAD_CLASS=payload.value,
    )
    settings = merge_settings(properties)
    assert settings.payload is payload
    ordering = {
        Payload.MYSQL_DEBEZIUM: ("_event_bin_file", "_event_pos"),
        Payload.POSTGRES_DEBEZIUM: ("_event_lsn",),
        Payload.AWS_DMS: (),
    }
    assert table_merger(settings).ordering_fields == ordering.get(payload, ("ts",))


def test_table_of_version_9_stores_all_merge_settings() -> None:
    properties = table(
        9,
        ordering="_event_lsn",
        MERGE_MODE="EVENT_TIME_ORDERING",
        PARTIAL_UPDATE_MODE="FILL_UNAVAILABLE",
        UNAVAILABLE_VALUE="gone",
        DELETE_FIELD="op",
        DELETE_MARKER="d",
    )
    assert merge_settings(properties) == MergeSettings(
        mode=MergeMode.EVENT_TIME,
        ordering_fields=("_event_lsn",),
        partial_update=PartialUpdateMode.FILL_UNAVAILABLE,
        unavailable_value="gone",
        delete_marker=DeleteMarker("op", "d"),
    )


def test_unknown_strategy_is_refused_by_name() -> None:
    properties = table(9, MERGE_MODE="CUSTOM", MERGE_STRATEGY_ID=OWN_STRATEGY, DELETE_FIELD="op")
    assert merge_settings(properties) == MergeSettings(
        mode=MergeMode.CUSTOM, ordering_fields=("ts",), strategy_id=OWN_STRATEGY
    )


def test_default_settings_use_the_plain_mergers() -> None:
    assert table_merger(EVENT) == event_time_merger(["ts"])
    assert table_merger(COMMIT) == commit_time_merger()


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        (table(6, PAYLOAD_CLASS="com.example.Mine"), r"com\.example\.Mine"),
        (
            table(
                9,
                MERGE_MODE="CUSTOM",
                MERGE_STRATEGY_ID=PAYLOAD_STRATEGY,
                PAYLOAD_CLASS=f"{MODELS}FirstValueAvroPayload",
            ),
            "FirstValueAvroPayload",
        ),
        (table(9, PARTIAL_UPDATE_MODE="FILL_DEFAULTS"), "FILL_DEFAULTS"),
    ],
)
def test_unknown_merge_setting_is_refused_by_name(properties: TableProperties, named: str) -> None:
    with pytest.raises(Unsupported, match=named):
        merge_settings(properties)


@pytest.mark.parametrize(
    "properties", [table(5), table(7), table(9, DROP_PARTITION_COLUMNS="true")]
)
def test_writing_is_refused_for_read_only_merge_settings(properties: TableProperties) -> None:
    with pytest.raises(Unsupported, match="/lake/trips"):
        check_allows(properties, Purpose.MAINTAIN, "/lake/trips")
    for version in (6, 8, 9):
        check_allows(table(version), Purpose.MAINTAIN, "/lake/trips")


@pytest.mark.parametrize(("kind", "left"), [(pa.string(), ["1"]), (pa.int64(), ["2"])], ids=str)
def test_payload_compares_only_types_that_hudi_holds_in_one_class(
    kind: pa.DataType, left: list[str]
) -> None:
    settings = MergeSettings(
        mode=MergeMode.EVENT_TIME, ordering_fields=("ts",), payload=Payload.PARTIAL_UPDATE
    )
    settings = replace(settings, partial_update=PartialUpdateMode.IGNORE_DEFAULTS)
    changes = pa.table({RECORD_KEY: ["x", "x"], "ts": pa.array(["2", "1"]).cast(kind)})
    kinds = pa.array([ChangeKind.UPSERT] * 2, pa.int8())

    folded = table_merger(settings).fold(changes.append_column(CHANGE_KIND_FIELD, kinds))

    assert folded["ts"].cast(pa.string()).to_pylist() == left
