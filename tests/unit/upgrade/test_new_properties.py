"""A table merges in the same way before and after an upgrade or downgrade."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from lakemark.config import keys
from lakemark.config.merge_settings import PAYLOAD_CLASSES, Payload, merge_settings
from lakemark.config.table_properties import MergeMode, TableProperties
from lakemark.config.table_spec import TableSpec
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.upgrade.new_properties import changed_properties, properties_of
from tests.unit.config.test_table_spec import ORDERED, OWN

V6, V8, V9 = WRITTEN

#: Of MySQL's payload there are two ordering columns, which only version 9 has.
PAYLOADS = [name for name in PAYLOAD_CLASSES if "MySql" not in name]
SPECS = [
    ORDERED,
    replace(ORDERED, merge_mode=MergeMode.COMMIT_TIME),
    replace(ORDERED, merger=OWN, merge_mode=MergeMode.CUSTOM),
    *(replace(ORDERED, payload=name, ordering=("ts",)) for name in PAYLOADS[:-2]),
]


@pytest.mark.parametrize(("before", "after"), list(product(WRITTEN, WRITTEN)))
def test_the_words_change_and_not_what_they_say(
    before: FormatVersion, after: FormatVersion
) -> None:
    for spec in SPECS:
        _check(replace(spec, version=before), after)


def _check(spec: TableSpec, after: FormatVersion) -> None:
    properties = spec.to_properties()
    changed = properties_of(properties, after)
    said = [replace(merge_settings(one), payload=None) for one in (properties, changed)]
    assert said[0] == said[1]
    assert changed.version == after
    replace(spec, version=after).check(changed, "/lake/trips")
    names = {name for name, *_ in changed_properties(properties, changed)}
    assert ("hoodie.table.version" in names) == (spec.version is not after)


_EVENT_TIME = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
_COMMIT_TIME = "ce9acb64-bde0-424c-9b91-f6ebba25356d"
_OF_PAYLOAD = "00000000-0000-0000-0000-000000000000"
_DEBEZIUM = {keys.DELETE_FIELD: "_change_operation_type", keys.DELETE_MARKER: "d"}

#: What stays of a payload in version 9, as Apache Hudi 1.2.0 leaves it: the column that orders
#: before version 9, the strategy that is left of version 8, and all other properties.
_IN_VERSION_9 = {
    Payload.MYSQL_DEBEZIUM: (
        "_event_seq",
        _EVENT_TIME,
        {
            keys.MERGE_MODE: "EVENT_TIME_ORDERING",
            keys.ORDERING_FIELDS: "_event_bin_file,_event_pos",
            **_DEBEZIUM,
        },
    ),
    Payload.POSTGRES_DEBEZIUM: (
        "_event_lsn",
        _EVENT_TIME,
        {
            keys.MERGE_MODE: "EVENT_TIME_ORDERING",
            keys.ORDERING_FIELDS: "_event_lsn",
            keys.PARTIAL_UPDATE_MODE: "FILL_UNAVAILABLE",
            keys.UNAVAILABLE_VALUE: "__debezium_unavailable_value",
            **_DEBEZIUM,
        },
    ),
    Payload.AWS_DMS: (
        "ts",
        _COMMIT_TIME,
        {
            keys.MERGE_MODE: "COMMIT_TIME_ORDERING",
            keys.ORDERING_FIELDS: "ts",
            keys.DELETE_FIELD: "Op",
            keys.DELETE_MARKER: "D",
        },
    ),
    Payload.OVERWRITE_NON_DEFAULTS: (
        "ts",
        _COMMIT_TIME,
        {
            keys.MERGE_MODE: "COMMIT_TIME_ORDERING",
            keys.ORDERING_FIELDS: "ts",
            keys.PARTIAL_UPDATE_MODE: "IGNORE_DEFAULTS",
        },
    ),
}
_MERGING = {
    *(key for *_, values in _IN_VERSION_9.values() for key in values),
    *(keys.PAYLOAD_CLASS, keys.LEGACY_PAYLOAD_CLASS, keys.PRECOMBINE_FIELD),
    *(keys.MERGE_STRATEGY_ID, keys.OLD_MERGE_STRATEGY_ID),
}


def merging(properties: TableProperties) -> dict[str, str]:
    return {key: text for key, text in properties.values.items() if key in _MERGING}


@pytest.mark.parametrize("payload", list(_IN_VERSION_9))
def test_payload_of_every_version_becomes_what_apache_hudi_makes_of_it(payload: Payload) -> None:
    ordering, strategy, rules = _IN_VERSION_9[payload]
    old = {keys.PAYLOAD_CLASS: str(payload), keys.PRECOMBINE_FIELD: ordering}
    of_6 = {**old, keys.OLD_MERGE_STRATEGY_ID: _OF_PAYLOAD}
    of_8 = {**old, keys.MERGE_STRATEGY_ID: _OF_PAYLOAD, keys.MERGE_MODE: "CUSTOM"}
    of_9 = {**rules, keys.LEGACY_PAYLOAD_CLASS: str(payload)}
    bare = replace(ORDERED, version=V6).to_properties().values
    bare = {key: text for key, text in bare.items() if key not in _MERGING}
    tables = {
        version: TableProperties({**bare, **own, keys.TABLE_VERSION: str(int(version))})
        for version, own in ((V6, of_6), (V8, of_8), (V9, of_9))
    }
    for before, after in product(tables, tables):
        expected = merging(tables[after])
        if (before, after) == (V8, V9):
            expected[keys.MERGE_STRATEGY_ID] = strategy
        if before is not after:
            assert merging(properties_of(tables[before], after)) == expected
    upgraded = properties_of(tables[V8], V9)
    assert merging(properties_of(upgraded, V8)) == of_8, "and back"


_KEYGEN = "org.apache.hudi.keygen."


@pytest.mark.parametrize(
    ("stored", "word", "class_name"),
    [
        ({keys.KEY_GENERATOR_TYPE: "TIMESTAMP"}, "TIMESTAMP", "TimestampBasedKeyGenerator"),
        (
            {keys.KEY_GENERATOR_CLASS: f"{_KEYGEN}TimestampBasedKeyGenerator"},
            "TIMESTAMP",
            "TimestampBasedKeyGenerator",
        ),
        (
            {keys.KEY_GENERATOR_CLASS: f"{_KEYGEN}CustomAvroKeyGenerator"},
            "CUSTOM_AVRO",
            "CustomAvroKeyGenerator",
        ),
        ({keys.KEY_GENERATOR_TYPE: "SIMPLE"}, "SIMPLE", "SimpleKeyGenerator"),
    ],
)
def test_key_generator_has_word_and_class_after_a_change(
    stored: dict[str, str], word: str, class_name: str
) -> None:
    both = {keys.KEY_GENERATOR_TYPE: word, keys.KEY_GENERATOR_CLASS: f"{_KEYGEN}{class_name}"}
    for before, after in product(WRITTEN, WRITTEN):
        made = replace(ORDERED, version=before).to_properties().values
        kept = {key: text for key, text in made.items() if key not in both}
        changed = properties_of(TableProperties({**kept, **stored}), after)
        assert {key: changed.values.get(key) for key in both} == both


def test_own_class_of_a_key_generator_stays() -> None:
    named = {keys.KEY_GENERATOR_TYPE: "USER_PROVIDED", keys.KEY_GENERATOR_CLASS: "com.example.Keys"}
    made = replace(ORDERED, version=V9).to_properties().values
    for version in (V6, V8):
        changed = properties_of(TableProperties({**made, **named}), version).values
        assert named.items() <= changed.items()


def test_partition_fields_have_types_from_version_8_on() -> None:
    made = replace(ORDERED, version=V8).to_properties().values
    typed = {keys.PARTITION_FIELDS: "day:SIMPLE,at:TIMESTAMP", keys.KEY_GENERATOR_TYPE: "CUSTOM"}
    of_8 = TableProperties({**made, **typed})
    assert properties_of(of_8, V9).values[keys.PARTITION_FIELDS] == "day:SIMPLE,at:TIMESTAMP"
    of_6 = properties_of(of_8, V6)
    assert of_6.values[keys.PARTITION_FIELDS] == "day,at"
    again = properties_of(of_6, V9, {keys.PARTITION_FIELDS: "day:SIMPLE,at:TIMESTAMP"})
    assert again.values[keys.PARTITION_FIELDS] == "day:SIMPLE,at:TIMESTAMP"
