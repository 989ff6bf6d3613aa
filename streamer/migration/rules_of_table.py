"""Rules: the table, its keys and partitions, merging, indexes and base files.

Source: ``HoodieStreamer.Config``, ``HoodieWriteConfig``, ``HoodieTableConfig``,
``KeyGeneratorOptions``, ``HoodieIndexConfig`` and ``HoodieStorageConfig`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from streamer.migration.rule import (
    Combined,
    Direct,
    NoCounterpart,
    NoEffect,
    Rule,
    one_of,
    whole_number,
    yes_or_no,
)

_OPTION_COUNTS = NoEffect("HoodieStreamer takes this from its options")
_WRITE = "hoodie.datasource.write."
_TIMES = "hoodie.keygen.timebased."
_FOLDERS = Combined("the expression of a time in `table.partition_by`, such as `day(at)`")
_GLOBAL = Combined("`table.partition_change: move`, if the index is global")
_INDEX_EXECUTION = NoEffect("it tunes how Apache Hudi looks up keys")
_BULK = NoEffect("it sets how Apache Hudi sorts and divides a bulk insert")
_OTHER_FORMAT = NoEffect("it applies to base files of another format than Parquet")
_FILE_DETAIL = NoEffect("it sets details of Apache Hudi's files, which all readers accept")

TABLE_RULES = (
    Rule("--target-base-path", Combined("`table.path`")),
    Rule("--target-table", Combined("`table.name`")),
    Rule("--table-type", Combined("`table.type`")),
    Rule(
        "--op",
        Combined(
            "`table.operation`: `UPSERT` becomes `upsert`, `INSERT` and `BULK_INSERT` become "
            "`insert`; others have no counterpart"
        ),
    ),
    Rule(
        "--filter-dupes",
        Combined(
            "`table.duplicates: drop`, which compares the keys of one partition; those of a record "
            "index have no counterpart"
        ),
        takes_value=False,
    ),
    Rule(f"{_WRITE}insert.drop.duplicates", _OPTION_COUNTS),
    Rule("hoodie.datasource.insert.dup.policy", _OPTION_COUNTS),
    Rule("hoodie.combine.before.insert", _OPTION_COUNTS),
    Rule("hoodie.combine.before.upsert", NoEffect("HoodieStreamer always combines")),
    Rule("hoodie.combine.before.delete", NoEffect("lakemark always combines")),
    Rule(
        "hoodie.merge.allow.duplicate.on.inserts",
        Combined("nothing, unless it is `false` and `--op` is `INSERT`; then no counterpart"),
    ),
    Rule(
        "--base-file-format",
        NoCounterpart("base files are Parquet", changes_rows=True, unless=("parquet",)),
    ),
    Rule(
        "hoodie.base.file.format",
        NoCounterpart("base files are Parquet", changes_rows=True, unless=("parquet",)),
    ),
    Rule("hoodie.table.base.file.format", _OPTION_COUNTS),
    *(
        Rule(name, _OPTION_COUNTS)
        for name in (
            "hoodie.base.path",
            "hoodie.table.name",
            "hoodie.table.type",
            "hoodie.database.name",
            f"{_WRITE}table.name",
            f"{_WRITE}operation",
        )
    ),
    Rule(f"{_WRITE}table.type", _OPTION_COUNTS),
    Rule(
        "hoodie.write.table.version",
        Direct(
            "table.version",
            one_of({"6": 6, "8": 8, "9": 9}, "create version 6, 8 or 9"),
        ),
    ),
    Rule("hoodie.table.version", NoEffect("the table stores its version")),
    Rule("hoodie.table.initial.version", NoEffect("the table stores its version")),
    Rule("hoodie.write.auto.upgrade", NoEffect("a pipeline never changes the version of a table")),
    Rule(
        "hoodie.populate.meta.fields",
        Direct("table.meta_columns", yes_or_no),
    ),
    Rule("hoodie.table.cdc.enabled", Combined("`table.cdc`")),
    Rule("hoodie.table.cdc.supplemental.logging.mode", Combined("`table.cdc`")),
    Rule(
        "hoodie.table.timeline.timezone",
        NoCounterpart(
            "the table stores it; if the timeline is in local time (LOCAL), and the job ran in "
            "another zone than the pipeline will, set table.timeline_timezone",
            unless=("utc",),
        ),
    ),
    Rule(
        "hoodie.table.format",
        NoCounterpart("lakemark writes the native format", changes_rows=True, unless=("native",)),
    ),
    Rule(
        "hoodie.table.multiple.base.file.formats.enable",
        NoCounterpart("base files are Parquet", changes_rows=True, unless=("false", "")),
    ),
    Rule(
        "hoodie.partition.metafile.use.base.format",
        NoEffect("the table stores it, and every writer of the table follows it"),
    ),
    Rule(
        "hoodie.allow.operation.metadata.field",
        NoCounterpart(
            "lakemark does not write the column _hoodie_operation",
            changes_rows=True,
            unless=("false", ""),
        ),
    ),
)

KEY_RULES = (
    Rule(
        f"{_WRITE}recordkey.field",
        Combined("`table.record_key`; `[]` if it is not given, with `table.operation: insert`"),
    ),
    Rule("hoodie.table.recordkey.fields", NoEffect("the table stores it")),
    Rule(f"{_WRITE}partitionpath.field", Combined("`table.partition_by`")),
    Rule("hoodie.table.partition.fields", NoEffect("the table stores it")),
    Rule(
        f"{_WRITE}keygenerator.class",
        Combined(
            "`table.partition_by`: without partitions for `NonpartitionedKeyGenerator`, with "
            "expressions of times for `TimestampBasedKeyGenerator` and `CustomKeyGenerator`; "
            "`SimpleKeyGenerator` and `ComplexKeyGenerator` follow from the fields; others have no "
            "counterpart"
        ),
    ),
    Rule(f"{_WRITE}keygenerator.type", Combined("as for the class of the key generator")),
    Rule("hoodie.table.keygenerator.class", NoEffect("the table stores it")),
    Rule("hoodie.table.keygenerator.type", NoEffect("the table stores it")),
    Rule(f"{_TIMES}timestamp.type", _FOLDERS),
    Rule(f"{_TIMES}timestamp.scalar.time.unit", _FOLDERS),
    Rule(f"{_TIMES}output.dateformat", _FOLDERS),
    Rule(f"{_TIMES}output.timezone", _FOLDERS),
    Rule(f"{_TIMES}timezone", _FOLDERS),
    Rule(f"{_TIMES}input.*", NoEffect("it applies to times that are texts")),
    Rule(
        "hoodie.keygen.datetime.parser.class",
        NoCounterpart(
            "lakemark formats times as HoodieDateTimeParser does",
            changes_rows=True,
            unless=("org.apache.hudi.keygen.parser.hoodiedatetimeparser",),
        ),
    ),
    Rule(f"{_WRITE}hive_style_partitioning", Direct("table.hive_style", yes_or_no)),
    Rule(f"{_WRITE}partitionpath.urlencode", Direct("table.url_encode", yes_or_no)),
    Rule(
        f"{_WRITE}drop.partition.columns",
        NoCounterpart(
            "lakemark stores the partition columns; continue the table with Apache Hudi",
            changes_rows=True,
            unless=("false", ""),
        ),
    ),
    Rule(
        f"{_WRITE}slash.separated.date.partitioning",
        Direct("table.slash_separated_dates", yes_or_no),
    ),
    Rule(
        f"{_WRITE}keygenerator.consistent.logical.timestamp.enabled",
        NoCounterpart(
            "lakemark does not write such record keys; continue the table with Apache Hudi",
            changes_rows=True,
            unless=("false", ""),
        ),
    ),
    Rule(
        "hoodie.write.complex.keygen.*",
        NoEffect("lakemark writes record keys in the encoding of the stored rows"),
    ),
    Rule("hoodie.skip.default.partition.validation", NoEffect("it belongs to old upgrades")),
)

MERGE_RULES = (
    Rule(
        "--source-ordering-fields",
        Combined("`table.ordering`"),
        aliases=("--source-ordering-field",),
    ),
    Rule(
        "--merge-mode",
        Combined("`table.merge_mode`; `CUSTOM` has no counterpart, except with a known payload"),
        aliases=("--record-merge-mode",),
    ),
    Rule(
        "--payload-class",
        Combined("`table.payload` or `table.merge_mode`; your own classes have no counterpart"),
    ),
    Rule(
        "--merge-strategy-id",
        Combined("`table.merge_mode`; ids of your own mergers have no counterpart"),
        aliases=("--record-merge-strategy-id",),
    ),
    Rule(
        "--merge-impl-classes",
        Combined("nothing, unless `--merge-mode` is `CUSTOM`"),
        aliases=("--record-merge-custom-implementation-classes",),
    ),
    *(
        Rule(
            name,
            Combined("nothing, if the options say the same; else give the option that it repeats"),
        )
        for name in (
            f"{_WRITE}payload.class",
            "hoodie.compaction.payload.class",
            "hoodie.table.ordering.fields",
            f"{_WRITE}precombine.field",
            "hoodie.payload.ordering.field",
            "hoodie.write.record.merge.mode",
            "hoodie.write.record.merge.strategy.id",
            "hoodie.write.record.merge.custom.implementation.classes",
        )
    ),
    *(
        Rule(name, NoEffect("the table stores it"))
        for name in (
            "hoodie.record.merge.mode",
            "hoodie.record.merge.strategy.id",
            "hoodie.table.legacy.payload.class",
            "hoodie.table.partial.update.mode",
        )
    ),
    Rule(
        "hoodie.record.merge.property.*",
        NoEffect("the table stores it"),
    ),
    Rule(
        "hoodie.payload.event.time.field",
        Combined("`table.event_time_column`; a column of ISO-8601 texts must be converted"),
    ),
    Rule(
        "hoodie.write.track.event.time.watermark",
        Combined("`true`: `table.event_time_column` is set"),
    ),
    Rule("hoodie.payload.delete.*", Combined("`table.delete_when`")),
)

INDEX_RULES = (
    Rule(
        "hoodie.index.type",
        Combined(
            "`BUCKET` becomes `table.buckets`, and with the engine `CONSISTENT_HASHING` "
            "`table.index: consistent_hashing`; a record index that the job builds becomes "
            "`table.index: record_index` or `partitioned_record_index`; other indexes, and the "
            "default, become `table.index: lookup`; indexes of the whole table (`GLOBAL_…`, "
            "`RECORD_INDEX`) also become `table.partition_change: move` if the table is partitioned"
        ),
    ),
    Rule(
        "hoodie.index.class",
        NoCounterpart("lakemark has no indexes of users", changes_rows=True, unless=("",)),
    ),
    Rule("hoodie.index.bucket.engine", Combined("`table.index`")),
    Rule("hoodie.bucket.index.num.buckets", Combined("`table.buckets`; 256 if it is not given")),
    Rule("hoodie.bucket.index.hash.field", Combined("nothing, if it is the record key")),
    Rule(
        "hoodie.bucket.index.partition.*",
        NoEffect("lakemark reads the bucket counts of partitions from the table"),
    ),
    Rule("hoodie.bucket.index.split.threshold", Combined("`bucket_resizing.split_above_bytes`")),
    Rule("hoodie.bucket.index.merge.threshold", Combined("`bucket_resizing.merge_below_bytes`")),
    Rule(
        "hoodie.bucket.index.max.num.buckets",
        NoCounterpart("the size of the buckets alone decides when they are split"),
    ),
    Rule(
        "hoodie.bucket.index.min.num.buckets",
        NoEffect("a partition keeps at least as many buckets as it had at first"),
    ),
    Rule("hoodie.bucket.index.query.pruning", NoEffect("it applies to queries")),
    Rule("hoodie.bucket.index.remote.partitioner.enable", _INDEX_EXECUTION),
    Rule("hoodie.simple.index.update.partition.path", _GLOBAL),
    Rule("hoodie.bloom.index.update.partition.path", _GLOBAL),
    Rule("hoodie.record.index.update.partition.path", _GLOBAL),
    *(
        Rule(name, _INDEX_EXECUTION)
        for name in (
            "hoodie.bloom.index.*",
            "hoodie.index.bloom.*",
            "hoodie.simple.index.*",
            "hoodie.global.*",
            "hoodie.record.index.*",
            "hoodie.index.name",
            "hoodie.expression.index.*",
        )
    ),
    Rule(f"{_WRITE}secondarykey.column", NoEffect("the table stores its secondary indexes")),
)

FILE_RULES = (
    Rule(
        "hoodie.parquet.compression.codec",
        Direct(
            "base_files.compression",
            one_of(
                {word: word for word in ("zstd", "snappy", "gzip", "lz4_raw", "uncompressed")},
                "lakemark compresses base files with zstd, snappy, gzip or lz4_raw; readers accept "
                "every codec",
            ),
        ),
    ),
    Rule("hoodie.parquet.max.file.size", Direct("base_files.max_file_bytes", whole_number)),
    Rule("hoodie.parquet.small.file.limit", Direct("base_files.small_file_bytes", whole_number)),
    Rule(
        "hoodie.copyonwrite.record.size.estimate", Direct("base_files.record_bytes", whole_number)
    ),
    Rule("hoodie.parquet.page.size", Direct("base_files.page_bytes", whole_number)),
    Rule("hoodie.parquet.dictionary.enabled", Direct("base_files.dictionary", yes_or_no)),
    Rule(
        "hoodie.parquet.block.size",
        NoCounterpart(
            "base_files.row_group_bytes counts bytes of memory instead of encoded bytes, and has a "
            "default that fits most tables"
        ),
    ),
    Rule(
        "hoodie.logfile.data.block.format",
        Combined("`table.log_format`, for a merge-on-read table"),
    ),
    *(
        Rule(name, _FILE_DETAIL)
        for name in (
            "hoodie.parquet.*",
            "hoodie.logfile.*",
            "hoodie.storage.*",
            "hoodie.io.factory.class",
            "hoodie.avro.write.support.class",
            "hoodie.fileid.prefix.provider.class",
            "hoodie.copyonwrite.insert.*",
            "hoodie.record.size.*",
            "_hoodie.record.size.*",
            "hoodie.write.record.positions",
            "hoodie.merge.small.file.group.candidates.limit",
            "hoodie.streamer.sample.writes.*",
        )
    ),
    *(Rule(name, _OTHER_FORMAT) for name in ("hoodie.orc.*", "hoodie.hfile.*", "hoodie.lance.*")),
    *(Rule(name, _BULK) for name in ("hoodie.bulkinsert.*", f"{_WRITE}row.writer.enable")),
)
