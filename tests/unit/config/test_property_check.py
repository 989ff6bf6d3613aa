"""Whether each property of a table allows reading and writing the table."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from lakemark.config import keys
from lakemark.config.property_check import check_allows, find_problems, find_rule
from lakemark.config.property_rule import Purpose
from lakemark.config.property_rules import RULES
from lakemark.config.table_properties import TableProperties
from lakemark.errors import Unsupported
from lakemark.model.format_version import FormatVersion
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from tests.golden.golden_table import ALL_TABLES, ARCHIVES, GoldenTable, unpack

READ, MAINTAIN, WRITE = Purpose

#: Each key that Apache Hudi 1.2.0 stores in hoodie.properties: of ``HoodieTableConfig`` and
#: ``TimestampKeyGeneratorConfig``, their alternatives, and the merge properties that it writes.
STORED_BY_HUDI = (Path(__file__).parent / "hudi_1_2_0_table_properties.txt").read_text().split()

#: A property, its value, and the first purpose that it refuses on a merge-on-read table.
REFUSED = [
    ("hoodie.table.version", "7", READ),
    ("hoodie.timeline.layout.version", "1", READ),
    ("hoodie.table.format", "iceberg", READ),
    ("hoodie.bootstrap.base.path", "s3://lake/parquet", READ),
    ("hoodie.table.base.file.format", "ORC", READ),
    ("hoodie.table.ro.file.format", "ORC", READ),
    ("hoodie.table.base.file.format", "HFILE", MAINTAIN),
    ("hoodie.table.log.file.format", "PARQUET", READ),
    ("hoodie.table.multiple.base.file.formats.enable", "true", MAINTAIN),
    ("hoodie.datasource.write.drop.partition.columns", "true", READ),
    (
        "hoodie.table.partition_extractor_class",
        "org.apache.hudi.hive.SlashEncodedDayPartitionValueExtractor",
        WRITE,
    ),
    ("hoodie.table.keygenerator.type", "USER_PROVIDED", WRITE),
    ("hoodie.table.timeline.timezone", "CET", MAINTAIN),
    ("hoodie.table.metadata.partitions", "files,secondary_index_v", MAINTAIN),
    ("hoodie.table.metadata.partitions.inflight", "record_index", MAINTAIN),
    ("hoodie.table.index.defs.path", "indexes.json", MAINTAIN),
    ("hoodie.table.secondary.indexes.metadata", "[]", MAINTAIN),
    ("hoodie.table.partial.update.mode", "KEEP_VALUES", MAINTAIN),
    ("hoodie.record.merge.mode", "CUSTOM", MAINTAIN),
    ("hoodie.record.merge.property.com.shop.rule", "x", MAINTAIN),
    ("hoodie.meta.fields.exclude.list", "_hoodie_operation", MAINTAIN),
    ("hoodie.index.type", "GLOBAL_BLOOM", MAINTAIN),
    ("hoodie.datasource.write.hive_style_partitioning", "true ", MAINTAIN),
    ("hoodie.table.partition.fields", " region", MAINTAIN),
    ("hoodie.populate.meta.fields", "true\t", MAINTAIN),
    ("lakemark.partition.expressions", '{"region": "week(at)"}', WRITE),
    ("lakemark.row.filter", "v > 0", MAINTAIN),
]


@pytest.fixture(scope="module")
def merge_on_read(tmp_path_factory: pytest.TempPathFactory) -> GoldenTable:
    return unpack("v9_mor_parquet_bucket", tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def copy_on_write(tmp_path_factory: pytest.TempPathFactory) -> GoldenTable:
    return unpack("v9_cow_simple", tmp_path_factory.mktemp("golden"))


def changed(golden: GoldenTable, **values: str) -> TableProperties:
    return TableProperties({**golden.properties.values, **values})


@pytest.mark.parametrize(("key", "value", "since"), REFUSED)
def test_property_that_is_not_supported_is_refused_by_name_value_and_remedy(
    merge_on_read: GoldenTable, key: str, value: str, since: Purpose
) -> None:
    properties = changed(merge_on_read, **{key: value})
    for purpose in Purpose:
        if purpose < since:
            check_allows(properties, purpose, "lake/t")
        else:
            with pytest.raises(Unsupported) as caught:
                check_allows(properties, purpose, "lake/t")
            assert str(caught.value).startswith("table lake/t cannot be ")
            assert f"{key} is {value!r}, " in str(caught.value)
            assert "; " in str(caught.value)


@pytest.mark.refuses("Table properties that foreign_tables.md lists as refused for reading")
@pytest.mark.parametrize(("key", "value", "since"), [case for case in REFUSED if case[2] is READ])
def test_table_with_an_unreadable_property_does_not_open(
    tmp_path: Path, key: str, value: str, since: Purpose
) -> None:
    golden = unpack("v9_mor_parquet_bucket", tmp_path)
    store(golden, changed(golden, **{key: value}))
    with pytest.raises(Unsupported, match=f"{key} is '{value}'"):
        open_table(StorageLocation(str(golden.root)))


def store(golden: GoldenTable, properties: TableProperties) -> None:
    (golden.root / ".hoodie" / "hoodie.properties").write_bytes(properties.to_bytes())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.cdc.enabled", "false"),
        ("hoodie.table.base.file.format", "PARQUET"),
        ("hoodie.table.timeline.timezone", "LOCAL"),
        ("hoodie.table.metadata.partitions.inflight", ""),
        ("hoodie.partition.metafile.use.base.format", "true"),
        ("hoodie.table.create.schema", '{"type":"record","name":"t","fields":[]}'),
        ("hoodie.table.initial.version", "6"),
        ("hoodie.bootstrap.index.enable", "true"),
        ("hoodie.datasource.write.slash.separated.date.partitioning", "true"),
        ("hoodie.keygen.timebased.timezone", "UTC"),
        ("hoodie.deltastreamer.keygen.timebased.timezone", "UTC"),
        ("team.owner", "lake@example.org"),
    ],
)
def test_harmless_property_allows_everything(
    merge_on_read: GoldenTable, copy_on_write: GoldenTable, key: str, value: str
) -> None:
    for golden in (merge_on_read, copy_on_write):
        check_allows(changed(golden, **{key: value}), WRITE, "lake/t")


@pytest.mark.parametrize(
    "values",
    [
        {keys.HIVE_STYLE_PARTITIONING: "true"},
        {keys.PARTITION_FIELDS: "region,v", keys.KEY_GENERATOR_TYPE: "COMPLEX"},
        {keys.PARTITION_FIELDS: "region:SIMPLE", keys.KEY_GENERATOR_TYPE: "CUSTOM"},
    ],
    ids=str,
)
def test_dates_that_apache_hudi_separates_in_two_ways_are_refused(
    merge_on_read: GoldenTable, values: dict[str, str]
) -> None:
    properties = changed(merge_on_read, **{**values, keys.SLASH_SEPARATED_DATES: "true"})
    check_allows(properties, MAINTAIN, "lake/t")
    with pytest.raises(Unsupported, match=r"slash.separated.date.partitioning is 'true', but"):
        check_allows(properties, WRITE, "lake/t")


def test_extractor_of_slash_separated_dates_asks_for_the_property(
    merge_on_read: GoldenTable,
) -> None:
    class_name = "org.apache.hudi.hive.SlashEncodedDayPartitionValueExtractor"
    properties = changed(merge_on_read, **{keys.PARTITION_EXTRACTOR_CLASS: class_name})
    with pytest.raises(Unsupported, match=rf"store {keys.SLASH_SEPARATED_DATES}=true in "):
        check_allows(properties, WRITE, "lake/t")
    stored = TableProperties({**properties.values, keys.SLASH_SEPARATED_DATES: "true"})
    check_allows(stored, WRITE, "lake/t")


#: A table of Apache Hudi whose folders are formatted times.
TIMED = {
    "hoodie.table.keygenerator.type": "TIMESTAMP",
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
    "hoodie.keygen.timebased.timezone": "UTC",
}


@pytest.mark.parametrize(
    "values",
    [
        {},
        {
            "hoodie.keygen.timebased.timestamp.type": "SCALAR",
            "hoodie.keygen.timebased.timestamp.scalar.time.unit": "days",
        },
        {
            "hoodie.table.keygenerator.type": "CUSTOM",
            "hoodie.table.partition.fields": "region:simple,ts:timestamp",
        },
        {
            "hoodie.table.keygenerator.type": "CUSTOM",
            "hoodie.table.partition.fields": "region:SIMPLE",
            "hoodie.keygen.timebased.timestamp.type": "DATE_STRING",
        },
    ],
    ids=str,
)
def test_table_with_formatted_times_may_be_written(
    merge_on_read: GoldenTable, values: dict[str, str]
) -> None:
    check_allows(changed(merge_on_read, **{**TIMED, **values}), WRITE, "lake/t")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.keygen.timebased.timestamp.type", "DATE_STRING"),
        ("hoodie.keygen.timebased.timestamp.type", "MIXED"),
        ("hoodie.keygen.timebased.timestamp.type", ""),
        ("hoodie.keygen.timebased.output.dateformat", "EEE"),
        ("hoodie.keygen.timebased.output.dateformat", ""),
        ("hoodie.keygen.timebased.timezone", "Mars/Base"),
        ("hoodie.keygen.timebased.timezone", ""),
        ("hoodie.keygen.datetime.parser.class", "com.shop.Parser"),
        ("hoodie.deltastreamer.keygen.timebased.timezone", "UTC"),
    ],
)
def test_times_that_lakemark_cannot_format_are_refused_by_name(
    merge_on_read: GoldenTable, key: str, value: str
) -> None:
    properties = changed(merge_on_read, **{**TIMED, key: value})
    check_allows(properties, MAINTAIN, "lake/t")
    with pytest.raises(Unsupported, match=re.escape(f"{key} is {value!r}, ")):
        check_allows(properties, WRITE, "lake/t")


def test_custom_key_generator_without_types_of_its_fields_is_refused(
    merge_on_read: GoldenTable,
) -> None:
    properties = changed(merge_on_read, **{keys.KEY_GENERATOR_TYPE: "CUSTOM"})
    with pytest.raises(Unsupported, match=r"partition.fields is 'region', so .* table upgrade"):
        check_allows(properties, WRITE, "lake/t")


def test_dropped_partition_columns_are_only_read_and_only_from_folders_of_one_value(
    copy_on_write: GoldenTable,
) -> None:
    dropped = {keys.DROP_PARTITION_COLUMNS: "true"}
    check_allows(changed(copy_on_write, **dropped), READ, "lake/t")
    with pytest.raises(Unsupported, match=r"drop\.partition\.columns is 'true', "):
        check_allows(changed(copy_on_write, **dropped), MAINTAIN, "lake/t")
    by_time = changed(copy_on_write, **dropped, **{keys.KEY_GENERATOR_TYPE: "TIMESTAMP"})
    with pytest.raises(Unsupported, match="and each folder is the value of one column"):
        check_allows(by_time, READ, "lake/t")


@pytest.mark.parametrize(
    ("version", "partitions", "is_updated"),
    [
        ("9", "files,record_index,secondary_index_v", True),
        ("8", "files,record_index,secondary_index_v", True),
        ("6", "files,record_index,secondary_index_v", False),
        ("9", "files,secondary_index_v", False),
        ("9", "files,expr_index_v", True),
        ("8", "files,expr_index_v", True),
        ("6", "files,record_index,expr_index_v", False),
        ("9", "files,vector_index_v", False),
    ],
)
def test_indexes_of_values_depend_on_the_version_and_the_record_index(
    merge_on_read: GoldenTable, version: str, partitions: str, is_updated: bool
) -> None:
    values = {keys.TABLE_VERSION: version, keys.METADATA_PARTITIONS: partitions}
    properties = changed(merge_on_read, **values)
    problems = {problem.key for problem in find_problems(properties, WRITE)}
    assert (keys.METADATA_PARTITIONS not in problems) is is_updated


def test_every_problem_is_listed_at_once(merge_on_read: GoldenTable) -> None:
    properties = changed(merge_on_read, **{"hoodie.a": "1", "hoodie.table.version": "7"})
    assert [problem.key for problem in find_problems(properties, WRITE)] == [
        "hoodie.table.version",
        "hoodie.a",
    ]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"hoodie.table.keygenerator.type": "CUSTOM"},
            "reads only keys of the key generators SIMPLE",
        ),
        ({"hoodie.table.keygenerator.type": "TIMESTAMP"}, "only keys of the key generators"),
        ({"hoodie.table.keygenerator.type": "COMPLEX"}, "several record key fields, COMPLEX"),
        ({"hoodie.table.recordkey.fields": "id,region"}, "a record key without partition columns"),
        ({"hoodie.table.cdc.enabled": "true"}, "no change data of rows without meta columns"),
        ({"hoodie.table.metadata.partitions": "files,bloom_filters"}, "have no bloom filters"),
    ],
)
def test_tables_without_meta_columns_that_are_refused(
    merge_on_read: GoldenTable, given: dict[str, str], reason: str
) -> None:
    bare = {"hoodie.populate.meta.fields": "false", "hoodie.table.keygenerator.type": "SIMPLE"}
    check_allows(changed(merge_on_read, **bare), WRITE, "t")
    with pytest.raises(Unsupported, match=reason):
        check_allows(changed(merge_on_read, **(bare | given)), MAINTAIN, "t")


def test_value_of_an_unknown_password_is_not_shown(merge_on_read: GoldenTable) -> None:
    with pytest.raises(Unsupported) as caught:
        check_allows(changed(merge_on_read, **{"hoodie.sync.password": "s3cret"}), WRITE, "t")
    assert "hoodie.sync.password is set" in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("key", STORED_BY_HUDI)
def test_every_table_property_of_hudi_has_a_rule(key: str) -> None:
    assert find_rule(key) is not None


def test_every_rule_judges_one_property_once() -> None:
    named = [rule.key for rule in RULES]
    assert len(named) == len(set(named))
    of_lakemark = {
        keys.PARTITION_EXPRESSIONS,
        keys.DROPPED_INDEXES,
        keys.STATISTICS_COLUMNS,  # an option of writers of Apache Hudi
        *keys.INDEX_OF_CREATION,
    }
    of_hudi = {key for key in named if not key.endswith("*")} - of_lakemark
    assert of_hudi <= set(STORED_BY_HUDI)


@pytest.mark.parametrize("name", ALL_TABLES)
def test_every_golden_table_has_only_known_properties(name: str) -> None:
    bare = stored(name).without_metadata_table()
    only_read = {keys.DROP_PARTITION_COLUMNS}
    if not FormatVersion(bare.version).is_written:
        only_read.add(keys.TABLE_VERSION)
    assert {problem.key for problem in find_problems(bare, MAINTAIN)} <= only_read


def stored(name: str) -> TableProperties:
    with tarfile.open(ARCHIVES / f"{name}.tar.gz") as archive:
        file = archive.extractfile(f"{name}/table/.hoodie/hoodie.properties")
        assert file is not None
        return TableProperties.parse(file.read())
