"""``hoodie.properties`` of Apache Hudi is read as Java reads it; errors name damaged properties."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakemark.config import keys
from lakemark.config.new_table_properties import new_table_properties
from lakemark.config.properties_text import parse_properties
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import MergeMode, TableProperties, TableType, checksum
from lakemark.errors import CorruptData, Unsupported

# What Apache Hudi 1.2.0 wrote for a merge-on-read table.
APACHE = b"""#Updated at 2026-11-21T13:40:02.023435441Z
#Sat Nov 21 13:40:02 UTC 2026
hoodie.table.keygenerator.type=SIMPLE
hoodie.table.type=MERGE_ON_READ
hoodie.timeline.layout.version=2
hoodie.table.checksum=1783536867
hoodie.record.merge.mode=EVENT_TIME_ORDERING
hoodie.table.version=9
hoodie.table.metadata.partitions=column_stats,files,partition_stats
hoodie.table.partition.fields=region
hoodie.table.name=v9_mor_parquet_bucket
hoodie.table.recordkey.fields=id
hoodie.table.ordering.fields=ts
"""


def new(name: str = "orders") -> TableProperties:
    return new_table_properties(
        name, TableType.MERGE_ON_READ, ["id"], ["region"], ["ts"], MergeMode.EVENT_TIME
    )


def test_what_apache_hudi_wrote_is_read_and_its_checksum_agrees() -> None:
    properties = TableProperties.parse(APACHE)
    assert properties.table_name == "v9_mor_parquet_bucket"
    assert properties.is_merge_on_read
    assert properties.version == 9
    assert properties.record_key_fields == ("id",)
    assert properties.partition_fields == ("region",)
    assert properties.ordering_fields == ("ts",)
    assert properties.merge_mode is MergeMode.EVENT_TIME
    assert properties.metadata_partitions == ("column_stats", "files", "partition_stats")


@pytest.mark.parametrize(
    ("name", "expected"), [("orders", "1443086834"), ("orders_metadata", "2229742774")]
)
def test_checksums_that_apache_hudi_wrote(name: str, expected: str) -> None:
    assert checksum({keys.TABLE_NAME: name}) == expected


def test_new_properties_are_read_back() -> None:
    written = TableProperties.parse(new().to_bytes())
    assert {**written.values} == {**new().values, keys.TABLE_CHECKSUM: checksum(new().values)}


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=30)))
@example({"path": "C:\\data\\", "text": " begins with a space", "clé 時刻😀": "é"})
def test_any_key_and_value_survive(extra: dict[str, str]) -> None:
    written = TableProperties({**extra, **new().values}).to_bytes()
    read = TableProperties.parse(written).values
    assert {**read} == {**extra, **new().values, keys.TABLE_CHECKSUM: checksum(new().values)}


def test_characters_outside_ascii_are_escaped_since_java_reads_iso_8859_1() -> None:
    values = {**new().values, keys.RECORD_KEY_FIELDS: "clé", keys.ORDERING_FIELDS: "時刻😀"}
    written = TableProperties(values).to_bytes()
    assert b"hoodie.table.recordkey.fields=cl\\u00e9\n" in written
    assert b"hoodie.table.ordering.fields=\\u6642\\u523b\\ud83d\\ude00\n" in written
    assert TableProperties.parse(written).ordering_fields == ("時刻😀",)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("true", True),
        ("TRUE", True),
        ("true ", False),
        ("true\t", False),
        ("yes", False),
        ("", False),
    ],
)
def test_flags_are_read_as_java_reads_them(stored: str, expected: bool) -> None:
    key = keys.HIVE_STYLE_PARTITIONING
    properties = TableProperties({**new().values, key: stored, keys.POPULATE_META_FIELDS: stored})
    assert TableProperties.parse(properties.to_bytes()).hive_style is expected
    assert properties.populates_meta_columns is expected


def test_a_backslash_at_the_end_of_a_comment_does_not_hide_the_next_property() -> None:
    stored = b"# edited in C:\\tables\\\n" + new().to_bytes().partition(b"\n")[2]
    first = b"hoodie.datasource.write.hive_style_partitioning=true\n"
    assert TableProperties.parse(stored).values == TableProperties.parse(new().to_bytes()).values
    assert parse_properties(b"# C:\\\n" + first) == parse_properties(first)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a=b", {"a": "b"}),
        (b"a : b", {"a": "b"}),
        (b"a b", {"a": "b"}),
        (b"a\\:b=c\\=d", {"a:b": "c=d"}),
        (b"a=one\\\n   two", {"a": "onetwo"}),
        (b"a=\\u00e9", {"a": "\u00e9"}),
        (b"a=\xe9", {"a": "\u00e9"}),
        (b"a=\\uD83D\\uDE00", {"a": "\U0001f600"}),
        (b"a=one\\\n# two", {"a": "one# two"}),
        (b"a=one\\", {"a": "one"}),
        (b"! note\n# note\n\na=", {"a": ""}),
        (b"a", {"a": ""}),
        (b"a=b=c:d", {"a": "b=c:d"}),
    ],
)
def test_the_syntax_of_java_properties(text: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text.replace(b"hoodie.table.name=orders", b"hoodie.table.name=other"),
        lambda text: text[: len(text) // 2],
        lambda text: text.replace(b"=MERGE_ON_READ", b"=MERGE_ON_TUESDAYS"),
        lambda text: text.replace(b"version=9", b"version=nine"),
        lambda text: text.replace(b"=EVENT_TIME_ORDERING", b"=FASHION"),
    ],
)
def test_damaged_properties_are_named(damage: object) -> None:
    assert callable(damage)
    with pytest.raises(CorruptData, match=r"hoodie\.properties"):
        TableProperties.parse(damage(new().to_bytes()))


def test_words_of_a_later_version_are_not_called_damage() -> None:
    text = new().to_bytes().replace(b"table.version=9", b"table.version=11")
    with pytest.raises(Unsupported, match=r"'MERGE_ON_TUESDAYS' in a table of version 11"):
        TableProperties.parse(text.replace(b"=MERGE_ON_READ", b"=MERGE_ON_TUESDAYS"))


@pytest.mark.parametrize("mode", ["DATA_BEFORE", "data_before_after", "", "EVERYTHING"])
def test_table_with_an_unknown_cdc_mode_is_not_written(mode: str) -> None:
    stored = {**new().values, keys.CDC_ENABLED: "true", keys.CDC_LOGGING_MODE: mode}
    refused: Any = pytest.raises(Unsupported, match=f"{keys.CDC_LOGGING_MODE} is 'EVERYTHING'")
    with refused if mode == "EVERYTHING" else nullcontext():
        check_allows(TableProperties(stored), Purpose.WRITE, "orders")


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_parser(data: bytes) -> None:
    try:
        TableProperties.parse(data)
    except CorruptData as error:
        assert error.path


@pytest.mark.parametrize(
    ("word", "class_name", "are_values"),
    [
        ("SIMPLE", None, True),
        ("COMPLEX_AVRO", None, True),
        (None, "org.apache.hudi.keygen.ComplexAvroKeyGenerator", True),
        ("SIMPLE", "org.apache.hudi.keygen.TimestampBasedKeyGenerator", False),
        ("SIMPLE", "com.example.SimpleKeyGenerator", False),
        ("CUSTOM", None, False),
        (None, None, False),
    ],
)
def test_the_key_generator_of_the_writer_decides_whether_folders_are_values(
    word: str | None, class_name: str | None, are_values: bool
) -> None:
    stored = {keys.KEY_GENERATOR_TYPE: word, keys.KEY_GENERATOR_CLASS: class_name}
    properties = TableProperties({key: value for key, value in stored.items() if value})
    assert properties.folders_are_values is are_values


def test_the_custom_key_generator_stores_types_with_the_partition_fields() -> None:
    properties = TableProperties({keys.PARTITION_FIELDS: "region:SIMPLE, seen:TIMESTAMP,plain"})
    assert properties.partition_fields == ("region", "seen", "plain")


@pytest.mark.parametrize("version", [0, 2, 3, 4, 5, 6, 9])
def test_only_versions_2_and_3_may_lack_the_checksum(version: int) -> None:
    data = f"hoodie.table.name=t\nhoodie.table.version={version}\n".encode()
    if version in (2, 3):
        assert TableProperties.parse(data).version == version
    else:
        with pytest.raises(CorruptData, match=r"hoodie\.table\.checksum"):
            TableProperties.parse(data)
    with pytest.raises(CorruptData, match=r"hoodie\.table\.checksum"):
        TableProperties.parse(data + b"hoodie.table.checksum=1\n")


def test_metadata_tables_before_version_6_are_not_read() -> None:
    stored = {keys.TABLE_NAME: "t", keys.METADATA_PARTITIONS: "files"}
    for version, read in ((4, ()), (5, ()), (6, ("files",))):
        properties = TableProperties({**stored, keys.TABLE_VERSION: str(version)})
        assert properties.metadata_partitions == read
        assert properties.names_metadata_table
