"""Key generators, partition paths, and tables without meta columns."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, concat, expr, lit, when

from tests.golden.make.options import (
    BUCKETS,
    NO_METADATA,
    Options,
    copy_on_write,
    keyed_by,
    merge_on_read,
    version,
)
from tests.golden.make.recipe import History, Recipe
from tests.golden.make.recipes.histories import (
    HARD_DELETED,
    INSERTED,
    LATE_AND_DELETED,
    UPDATED,
    five_commits,
)
from tests.golden.make.rows import rows
from tests.golden.make.table_in_making import Shape, TableInMaking

_TIME = "hoodie.keygen.timebased."
_NO_META_COLUMNS = {"hoodie.populate.meta.fields": "false"}
_ENCODED = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
_HIVE_STYLE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
_DROPPED = {"hoodie.datasource.write.drop.partition.columns": "true"}


def _with_times(frame: DataFrame) -> DataFrame:
    hours = expr("cast(substr(id, 2) as bigint) * 2")
    seconds = lit(1767225600) + hours * 3600
    frame = frame.withColumn("at_s", seconds).withColumn("at_ms", seconds * 1000)
    text = expr("date_format(timestamp_seconds(at_s), \"yyyy-MM-dd'T'HH:mm:ss\")")
    return frame.withColumn("at", text).withColumn("at_days", expr("at_s div 86400"))


def _with_odd_paths(frame: DataFrame) -> DataFrame:
    odd = (
        when(col("region") == "r0", lit("a b/c=d%e:ü?"))
        .when(col("region") == "r1", lit(""))
        .otherwise(lit(None).cast("string"))
    )
    return frame.withColumn("place", odd)


def _with_slashes(frame: DataFrame) -> DataFrame:
    return frame.withColumn("place", concat(lit("2026/"), col("region"), lit("/x")))


def _with_dates(frame: DataFrame) -> DataFrame:
    return frame.withColumn("place", concat(lit("2026-01-0"), expr("1 + substr(id, 2) % 3")))


def _with_small_number(frame: DataFrame) -> DataFrame:
    return frame.withColumn("line", expr("cast(substr(id, 2) as int) % 2"))


def _four_commits(shape: Shape) -> History:
    def write(table: TableInMaking) -> None:
        table.write("insert", INSERTED, shape=shape)
        table.write("upsert", UPDATED, shape=shape)
        table.write("upsert", LATE_AND_DELETED, shape=shape)
        table.write("delete", HARD_DELETED, shape=shape)

    return write


def _timed(kind: str, column: str, *groups: Options) -> dict[str, str]:
    options = keyed_by("TimestampBasedKeyGenerator", partition=column)
    options |= {f"{_TIME}timestamp.type": kind, f"{_TIME}timezone": "UTC"}
    for group in groups:
        options |= group
    return options


def _by_millis(number: int) -> Recipe:
    by_day = {f"{_TIME}output.dateformat": "yyyy/MM/dd"}
    return Recipe(
        f"v{number}_mor_timestamp_keys_millis",
        "TimestampBasedKeyGenerator: milliseconds become yyyy/MM/dd.",
        merge_on_read(
            BUCKETS, NO_METADATA, version(number), _timed("EPOCHMILLISECONDS", "at_ms", by_day)
        ),
        _four_commits(_with_times),
    )


def _by_region_and_time(number: int) -> Recipe:
    options = keyed_by("CustomKeyGenerator", partition="region:SIMPLE,at_s:TIMESTAMP") | {
        f"{_TIME}timestamp.type": "UNIX_TIMESTAMP",
        f"{_TIME}output.dateformat": "yyyyMMdd",
    }
    return Recipe(
        f"v{number}_cow_custom_keys",
        "CustomKeyGenerator: the partition path consists of a plain column and a time, Hive-style.",
        copy_on_write(NO_METADATA, version(number), options, _HIVE_STYLE),
        _four_commits(_with_times),
    )


def _complex_with_bare_keys(number: int) -> Recipe:
    bare = {
        "hoodie.write.complex.keygen.new.encoding": "true",
        "hoodie.write.complex.keygen.validation.enable": "false",
    }
    return Recipe(
        f"v{number}_mor_complex_bare_keys",
        "ComplexKeyGenerator with a single key column; keys contain its values, not its name.",
        merge_on_read(BUCKETS, NO_METADATA, version(number), keyed_by("ComplexKeyGenerator"), bare),
        _four_commits(lambda frame: frame),
    )


def _without_meta_columns(number: int, table_type: str) -> Recipe:
    table = copy_on_write if table_type == "cow" else merge_on_read
    index = {} if table_type == "cow" else BUCKETS
    return Recipe(
        f"v{number}_{table_type}_virtual_keys",
        "hoodie.populate.meta.fields=false: meta columns are null in the files.",
        table(index, NO_METADATA, version(number), _NO_META_COLUMNS),
        five_commits,
        asks_of_the_past=(),
    )


RECIPES = (
    _by_millis(6),
    _by_millis(9),
    Recipe(
        "v9_cow_timestamp_keys_text",
        "TimestampBasedKeyGenerator: a text in one format becomes a text in another, Hive-style.",
        copy_on_write(
            NO_METADATA,
            version(9),
            _HIVE_STYLE,
            _timed(
                "DATE_STRING",
                "at",
                {
                    f"{_TIME}input.dateformat": "yyyy-MM-dd'T'HH:mm:ss",
                    f"{_TIME}output.dateformat": "yyyy-MM",
                },
            ),
        ),
        _four_commits(_with_times),
    ),
    Recipe(
        "v9_cow_timestamp_keys_days",
        "TimestampBasedKeyGenerator: a number of days becomes yyyy-MM-dd.",
        copy_on_write(
            NO_METADATA,
            version(9),
            _timed(
                "SCALAR",
                "at_days",
                {
                    f"{_TIME}timestamp.scalar.time.unit": "DAYS",
                    f"{_TIME}output.dateformat": "yyyy-MM-dd",
                },
            ),
        ),
        _four_commits(_with_times),
    ),
    Recipe(
        "v9_cow_timestamp_keys_zoned",
        "TimestampBasedKeyGenerator: seconds become a date and hour of New York.",
        copy_on_write(
            NO_METADATA,
            version(9),
            _timed(
                "UNIX_TIMESTAMP",
                "at_s",
                {
                    f"{_TIME}output.dateformat": "yyyyMMdd-HH",
                    f"{_TIME}timezone": "America/New_York",
                },
            ),
        ),
        lambda table: table.write("insert", rows(range(6), version=0, ts=100), shape=_with_times),
        asks_of_the_past=(),
    ),
    _by_region_and_time(6),
    _by_region_and_time(9),
    Recipe(
        "v9_mor_nonpartitioned_complex",
        "No partitions, two key columns.",
        merge_on_read(
            BUCKETS,
            NO_METADATA,
            version(9),
            keyed_by("NonpartitionedKeyGenerator", record="id,line", partition=""),
        ),
        _four_commits(_with_small_number),
    ),
    _complex_with_bare_keys(6),
    _complex_with_bare_keys(8),
    Recipe(
        "v9_mor_complex_one_key_named",
        "ComplexKeyGenerator with a single key column: version 9 writes its name into the keys.",
        merge_on_read(
            BUCKETS,
            NO_METADATA,
            version(9),
            keyed_by("ComplexKeyGenerator"),
            {"hoodie.write.complex.keygen.new.encoding": "false"},
        ),
        _four_commits(lambda frame: frame),
    ),
    Recipe(
        "v9_cow_encoded_paths",
        "URL-encoded partition paths; empty and null values are in the default partition.",
        copy_on_write(
            NO_METADATA, version(9), _ENCODED, keyed_by("SimpleKeyGenerator", partition="place")
        ),
        _four_commits(_with_odd_paths),
    ),
    Recipe(
        "v9_cow_dropped_columns",
        "The files lack the partition columns; their values are only in the Hive-style path.",
        copy_on_write(
            NO_METADATA,
            version(9),
            keyed_by("ComplexKeyGenerator", partition="region,line"),
            _HIVE_STYLE,
            _DROPPED,
        ),
        _four_commits(_with_small_number),
    ),
    Recipe(
        "v9_mor_slash_paths",
        "Values with slashes create partition folders that are three levels deep.",
        merge_on_read(BUCKETS, version(9), keyed_by("SimpleKeyGenerator", partition="place")),
        _four_commits(_with_slashes),
    ),
    Recipe(
        "v9_cow_slash_dates",
        "Slash-separated date partitioning: 2026-01-02 becomes 2026/01/02.",
        copy_on_write(
            NO_METADATA,
            version(9),
            keyed_by("SimpleKeyGenerator", partition="place"),
            {"hoodie.datasource.write.slash.separated.date.partitioning": "true"},
        ),
        _four_commits(_with_dates),
    ),
    _without_meta_columns(6, "cow"),
    _without_meta_columns(9, "cow"),
    _without_meta_columns(6, "mor"),
    _without_meta_columns(9, "mor"),
)
