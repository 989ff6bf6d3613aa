"""A new table stores the merge mode that its settings ask for, and later runs must agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakemark.config import keys
from lakemark.config.merge_settings import (
    PAYLOAD_CLASSES,
    MergeSettings,
    PartialUpdateMode,
    merge_settings,
)
from lakemark.config.merger_name import MergerName
from lakemark.config.table_properties import MergeMode, TableProperties
from lakemark.config.table_spec import TableSpec
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.model.changes import DeleteMarker
from lakemark.model.format_version import FormatVersion
from tests.golden.shared_tables import SharedTables

MODELS = "org.apache.hudi.common.model."
PLAIN = TableSpec(name="trips", record_key=("id",))
ORDERED = TableSpec(name="trips", record_key=("id",), ordering=("ts",))
OWN = MergerName("shop.merging:Totals", "1897ef5f-18bc-4557-939c-9d6a8afd1519")
OTHER = MergerName("shop.merging:Other", "5b9b1b8e-40ae-4c4f-8a1f-5f7b1e1b7c11")
OP_IS_D = DeleteMarker("op", "d")
DEFAULTS = PartialUpdateMode.IGNORE_DEFAULTS
UNAVAILABLE = PartialUpdateMode.FILL_UNAVAILABLE

#: Properties that say how records are merged.
_MERGING = ("hoodie.record.merge.", "hoodie.table.partial.", "hoodie.compaction.payload")
_OF_MERGING = (keys.ORDERING_FIELDS, keys.LEGACY_PAYLOAD_CLASS, keys.MERGE_STRATEGY_ID)


def merging(properties: TableProperties) -> dict[str, str]:
    return {
        key: value
        for key, value in properties.values.items()
        if key in _OF_MERGING or key.startswith(_MERGING)
    }


GOLDEN = {
    "v9_mor_commit_time": replace(ORDERED, merge_mode=MergeMode.COMMIT_TIME),
    "v9_mor_parquet_bucket": ORDERED,
    "v9_mor_nonpartitioned_multiorder": replace(ORDERED, ordering=("ts", "qty")),
    "v9_mor_default_payload": replace(ORDERED, payload="DefaultHoodieRecordPayload"),
    "v9_mor_event_time_payload": replace(ORDERED, payload=f"{MODELS}EventTimeAvroPayload"),
    "v9_mor_overwrite_latest": replace(ORDERED, payload="OverwriteWithLatestAvroPayload"),
    "v9_mor_overwrite_non_defaults": replace(
        ORDERED, payload="OverwriteNonDefaultsWithLatestAvroPayload"
    ),
    "v9_mor_partial_update_payload": replace(ORDERED, payload="PartialUpdateAvroPayload"),
}


@pytest.mark.parametrize(("name", "spec"), GOLDEN.items(), ids=GOLDEN)
def test_a_new_table_has_the_properties_that_apache_hudi_writes(
    name: str, spec: TableSpec, shared_tables: SharedTables
) -> None:
    apache = shared_tables[name].properties
    assert merging(spec.to_properties()) == merging(apache)
    going_on = replace(spec, partition_by=apache.partition_fields)
    going_on.check(apache.without_metadata_table(), name)


OLDER = {
    "v6_mor_parquet_bucket": ORDERED,
    "v6_mor_commit_time": replace(ORDERED, merge_mode=MergeMode.COMMIT_TIME),
    "v6_mor_overwrite_latest": replace(ORDERED, payload="OverwriteWithLatestAvroPayload"),
    "v6_mor_partial_update_payload": replace(ORDERED, payload="PartialUpdateAvroPayload"),
    "v8_mor_parquet_bucket": ORDERED,
    "v8_mor_commit_time": replace(ORDERED, merge_mode=MergeMode.COMMIT_TIME),
}


@pytest.mark.parametrize(("name", "spec"), OLDER.items(), ids=OLDER)
def test_a_new_table_of_an_older_version_merges_as_apaches(
    name: str, spec: TableSpec, shared_tables: SharedTables
) -> None:
    apache = shared_tables[name].properties
    own = replace(spec, version=FormatVersion(apache.version)).to_properties()
    assert merge_settings(own) == merge_settings(apache)
    said = (keys.TABLE_VERSION, keys.TIMELINE_LAYOUT_VERSION, keys.MERGE_MODE, keys.PAYLOAD_CLASS)
    assert [own.values.get(key) for key in said] == [apache.values.get(key) for key in said]
    going_on = replace(spec, partition_by=apache.partition_fields)
    going_on.check(apache.without_metadata_table(), name)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (replace(ORDERED, ordering=("ts", "v")), "ordering: tables of version 8 order by one"),
        (replace(ORDERED, delete_marker=OP_IS_D), "delete_when: tables of version 8"),
        (replace(ORDERED, partial_update=DEFAULTS), "partial_update: tables of version 8"),
    ],
)
def test_a_setting_that_an_older_version_lacks_is_refused(spec: TableSpec, named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        replace(spec, version=FormatVersion.V8).to_properties()


PROPERTY = "hoodie.record.merge.property.hoodie."


@pytest.mark.parametrize(
    ("payload", "properties"),
    [
        (
            "debezium.PostgresDebeziumAvroPayload",
            {
                "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
                "hoodie.table.ordering.fields": "_event_lsn",
                "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
                f"{PROPERTY}write.partial.update.unavailable.value": "__debezium_unavailable_value",
                f"{PROPERTY}payload.delete.field": "_change_operation_type",
                f"{PROPERTY}payload.delete.marker": "d",
            },
        ),
        (
            "debezium.MySqlDebeziumAvroPayload",
            {
                "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
                "hoodie.table.ordering.fields": "_event_bin_file,_event_pos",
                f"{PROPERTY}payload.delete.field": "_change_operation_type",
                f"{PROPERTY}payload.delete.marker": "d",
            },
        ),
        (
            "AWSDmsAvroPayload",
            {
                "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
                f"{PROPERTY}payload.delete.field": "Op",
                f"{PROPERTY}payload.delete.marker": "D",
            },
        ),
    ],
)
def test_payloads_for_change_streams_bring_their_columns(
    payload: str, properties: dict[str, str]
) -> None:
    spec = replace(PLAIN, payload=payload.rpartition(".")[2])
    legacy = {"hoodie.table.legacy.payload.class": MODELS + payload}
    assert merging(spec.to_properties()) == properties | legacy


EVERY_KIND = [
    PLAIN,
    ORDERED,
    replace(ORDERED, merge_mode=MergeMode.COMMIT_TIME),
    replace(ORDERED, partial_update=DEFAULTS, delete_marker=OP_IS_D),
    replace(PLAIN, partial_update=UNAVAILABLE, unavailable_value="?"),
    replace(ORDERED, merger=OWN, delete_marker=OP_IS_D),
    *(replace(ORDERED, payload=p) for p in PAYLOAD_CLASSES if "Debezium" not in p),
    *(replace(PLAIN, payload=p) for p in PAYLOAD_CLASSES if "Debezium" in p),
]


@pytest.mark.parametrize("spec", EVERY_KIND, ids=str)
def test_readers_of_a_new_table_merge_as_was_asked(spec: TableSpec) -> None:
    stored = TableProperties.parse(spec.to_properties().to_bytes())
    assert merge_settings(stored) == replace(spec.merging, merger_class=None)
    spec.check(stored, "/lake/trips")


@pytest.mark.parametrize(
    ("spec", "mode"),
    [
        (PLAIN, MergeMode.COMMIT_TIME),
        (ORDERED, MergeMode.EVENT_TIME),
        (replace(ORDERED, ordering=("ts", "seq")), MergeMode.EVENT_TIME),
        (replace(ORDERED, merger=OWN), MergeMode.CUSTOM),
        (replace(ORDERED, payload="OverwriteWithLatestAvroPayload"), MergeMode.COMMIT_TIME),
    ],
    ids=str,
)
def test_a_mode_that_is_not_given_is_inferred(spec: TableSpec, mode: MergeMode) -> None:
    assert spec.merging.mode is mode


def test_a_merger_is_stored_by_its_strategy_alone() -> None:
    assert merging(replace(PLAIN, merger=OWN).to_properties()) == {
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": OWN.strategy_id,
    }
    settings = replace(PLAIN, merger=OWN).merging
    assert settings == MergeSettings(
        mode=MergeMode.CUSTOM, strategy_id=OWN.strategy_id, merger_class=OWN.class_path
    )


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        (
            replace(PLAIN, merge_mode=MergeMode.EVENT_TIME),
            "merge_mode: event_time needs ordering: name the columns",
        ),
        (
            replace(PLAIN, payload="DefaultHoodieRecordPayload"),
            "payload: DefaultHoodieRecordPayload means event_time, which needs ordering: name",
        ),
        (
            replace(PLAIN, merge_mode=MergeMode.CUSTOM),
            "merge_mode: custom needs merger: name a class as package.module:Class",
        ),
        (
            replace(ORDERED, merge_mode=MergeMode.EVENT_TIME, merger=OWN),
            "merger: shop.merging:Totals has no meaning with merge_mode event_time",
        ),
        (
            replace(PLAIN, merger=OWN, partial_update=DEFAULTS),
            "partial_update: ignore_defaults has no meaning with a merger of your own",
        ),
        (
            replace(PLAIN, payload="FirstValueAvroPayload"),
            "payload: FirstValueAvroPayload is unknown; use one of DefaultHoodieRecordPayload, ",
        ),
        (
            replace(ORDERED, payload="PartialUpdateAvroPayload", merge_mode=MergeMode.COMMIT_TIME),
            "merge_mode: commit_time contradicts payload PartialUpdateAvroPayload, "
            "which means event_time; leave one of the two out",
        ),
        (
            replace(ORDERED, payload="DefaultHoodieRecordPayload", partial_update=DEFAULTS),
            "partial_update: ignore_defaults contradicts payload DefaultHoodieRecordPayload, "
            "which means none",
        ),
        (
            replace(ORDERED, payload="MySqlDebeziumAvroPayload"),
            "ordering: ts contradicts payload MySqlDebeziumAvroPayload, "
            "which means _event_bin_file,_event_pos",
        ),
        (
            replace(PLAIN, payload="AWSDmsAvroPayload", delete_marker=OP_IS_D),
            "delete_marker: op = 'd' contradicts payload AWSDmsAvroPayload, which means Op = 'D'",
        ),
        (
            replace(ORDERED, payload="DefaultHoodieRecordPayload", merger=OWN),
            "merger: shop.merging:Totals contradicts payload DefaultHoodieRecordPayload",
        ),
        (
            replace(PLAIN, partial_update=UNAVAILABLE),
            "partial_update: fill_unavailable needs unavailable_value",
        ),
        (
            replace(PLAIN, unavailable_value="?"),
            "unavailable_value: '?' has no meaning with partial_update none",
        ),
        (
            replace(PLAIN, delete_marker=DeleteMarker("op", "")),
            "delete_marker: 'op' = '' marks nothing; give the column and the text",
        ),
    ],
    ids=lambda value: value.partition(":")[0] if isinstance(value, str) else "",
)
def test_what_does_not_go_together_is_refused(spec: TableSpec, refusal: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        spec.to_properties()
    assert str(refused.value).startswith(refusal)


@pytest.mark.parametrize(
    ("class_path", "strategy_id"),
    [
        ("shop.merging.Totals", OWN.strategy_id),
        ("shop merging:Totals", OWN.strategy_id),
        ("shop.merging:", OWN.strategy_id),
        ("shop.merging:Totals", "totals"),
    ],
)
def test_a_merger_without_a_proper_name_is_refused(class_path: str, strategy_id: str) -> None:
    with pytest.raises(InvalidConfig, match="merger"):
        MergerName(class_path, strategy_id)


@pytest.mark.parametrize(
    ("table", "writer", "refusal"),
    [
        (ORDERED, PLAIN, "merge_mode is EVENT_TIME_ORDERING in the table and COMMIT_TIME"),
        (ORDERED, replace(ORDERED, ordering=("seq",)), "ordering is ts in the table and seq in"),
        (ORDERED, replace(ORDERED, partial_update=DEFAULTS), "partial_update is none in the table"),
        (
            replace(PLAIN, partial_update=UNAVAILABLE, unavailable_value="?"),
            replace(PLAIN, partial_update=UNAVAILABLE, unavailable_value="!"),
            "unavailable_value is \\? in the table and ! in the pipeline",
        ),
        (
            replace(PLAIN, delete_marker=OP_IS_D),
            replace(PLAIN, delete_marker=DeleteMarker("op", "D")),
            "delete_marker is op = 'd' in the table and op = 'D' in the pipeline",
        ),
        (
            replace(ORDERED, payload="EventTimeAvroPayload"),
            replace(ORDERED, payload="DefaultHoodieRecordPayload"),
            "payload is .*EventTimeAvroPayload in the table and .*DefaultHoodieRecordPayload in",
        ),
        (
            replace(PLAIN, merger=OWN),
            replace(PLAIN, merger=OTHER),
            f"merge strategy is {OWN.strategy_id} in the table and {OTHER.strategy_id} in the",
        ),
        (replace(PLAIN, merger=OWN), PLAIN, "merge_mode is CUSTOM in the table"),
        (replace(ORDERED, merger=OWN), ORDERED, "merge_mode is CUSTOM in the table"),
    ],
)
def test_a_later_run_may_not_merge_otherwise(
    table: TableSpec, writer: TableSpec, refusal: str
) -> None:
    with pytest.raises(InvalidConfig, match=refusal):
        writer.check(table.to_properties(), "/lake/trips")


def test_settings_may_be_explicit_where_the_table_was_created_with_a_payload() -> None:
    table = replace(ORDERED, payload="PartialUpdateAvroPayload").to_properties()
    replace(ORDERED, partial_update=DEFAULTS).check(table, "/lake/trips")


def test_ordering_that_a_commit_time_table_keeps_need_not_be_named() -> None:
    table = replace(ORDERED, merge_mode=MergeMode.COMMIT_TIME).to_properties()
    PLAIN.check(table, "/lake/trips")
    with pytest.raises(InvalidConfig, match="ordering is ts in the table and seq"):
        replace(ORDERED, merge_mode=MergeMode.COMMIT_TIME, ordering=("seq",)).check(table, "/lake")


def test_a_payload_that_still_decides_must_be_named() -> None:
    class_name = f"{MODELS}PartialUpdateAvroPayload"
    values = {
        **ORDERED.to_properties().values,
        keys.MERGE_MODE: "CUSTOM",
        keys.MERGE_STRATEGY_ID: "00000000-0000-0000-0000-000000000000",
        keys.PAYLOAD_CLASS: class_name,
    }
    table = TableProperties(values)
    replace(ORDERED, payload=class_name).check(table, "/lake/trips")
    with pytest.raises(InvalidConfig, match=f"payload is {class_name} in the table and none in"):
        replace(ORDERED, partial_update=DEFAULTS).check(table, "/lake/trips")


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        (
            {keys.PARTIAL_UPDATE_MODE: "KEEP_VALUES"},
            r"hoodie\.table\.partial\.update\.mode is 'KEEP_VALUES'",
        ),
        ({keys.MERGE_MODE: "CUSTOM", keys.PAYLOAD_CLASS: "com.shop.Mine"}, r"com\.shop\.Mine"),
        ({keys.MERGE_MODE: "CUSTOM"}, "neither a merge strategy nor a payload class"),
    ],
)
def test_unknown_rules_are_not_written(changes: dict[str, str], refusal: str) -> None:
    values = {**ORDERED.to_properties().values, **changes}
    with pytest.raises(Unsupported, match=refusal):
        ORDERED.check(TableProperties(values), "/lake/trips")
