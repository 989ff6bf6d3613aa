"""A job becomes a pipeline that does the same, or a list of what has no counterpart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.timeline.locks.options import hash_of_path
from streamer.checks.start import check_locally
from streamer.config.load import load_text
from streamer.migration.report import render_report
from streamer.migration.translation import translate
from tests.unit.streamer.migration.jobs import (
    KEYGEN,
    LOCKS,
    MODELS,
    PARTITION,
    RECORD_KEY,
    REGISTRY_URL,
    SCHEMAS,
    SOURCES,
    TRANSFORMS,
    job,
    missing,
    settings,
    translated,
)

KAFKA = "hoodie.streamer.source.kafka."
TIMES = "hoodie.keygen.timebased."
GENERATOR = "hoodie.datasource.write.keygenerator.class"
COMPACTION = "org.apache.hudi.table.action.compact.strategy."
UTILITIES = "org.apache.hudi.utilities.streamer."
OWN_CLASS = "com.example.Own"
SECRET = "geheim"
SHARED = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
EARLY = "hoodie.write.concurrency.early.conflict.detection.enable"
AWS_LOCKS = "org.apache.hudi.aws.transaction.lock."
HIVE_LOCK = "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider"

PAYLOAD = "hoodie.datasource.write.payload.class"
MERGE_MODE = "hoodie.write.record.merge.mode"

#: Properties and options, each with a setting that it becomes. ``Any`` stands for several settings.
BECOMES: list[tuple[dict[str, str], dict[str, str | None], dict[str, Any]]] = [
    ({"auto.offset.reset": "earliest"}, {}, {"source.starting_offsets": "earliest"}),
    ({}, {}, {"source.starting_offsets": "latest"}),
    ({}, {"checkpoint": "orders,0:7,1:9"}, {"source.starting_offsets": {0: 7, 1: 9}}),
    (
        {f"{KAFKA}checkpoint.type": "timestamp"},
        {"checkpoint": "1700000000"},
        {"source.starting_offsets": {"timestamp": 1_700_000_000_000}},
    ),
    (
        {
            "hoodie.payload.event.time.field": "at",
            "hoodie.write.track.event.time.watermark": "true",
        },
        {},
        {"table.event_time_column": "at"},
    ),
    ({"hoodie.timeline.compaction.batch.size": "4"}, {}, {"archival.files_to_merge": 4}),
    ({f"{KAFKA}enable.failOnDataLoss": "true"}, {}, {"source.on_offset_out_of_range": "fail"}),
    ({f"{KAFKA}enable.failOnDataLoss": "false"}, {}, {"source.on_offset_out_of_range": "earliest"}),
    (
        {"hoodie.deltastreamer.kafka.source.maxEvents": "7"},
        {},
        {"source.max_records_per_batch": 7},
    ),
    (
        {"hoodie.streamer.kafka.source.maxEvents": "7"},
        {"source_limit": "8"},
        {"source.max_records_per_batch": 8},
    ),
    (
        {f"{KAFKA}append.offsets": "true"},
        {},
        {"source.metadata_columns": ["offset", "partition", "timestamp", "key"]},
    ),
    (
        {f"{KAFKA}enable.commit.offset": "true", "group.id": "g"},
        {},
        {"source.commit_group": "g"},
    ),
    (
        {"security.protocol": "SSL", "ssl.key.password": SECRET},
        {},
        {
            "source.consumer.security.protocol": "SSL",
            "source.consumer.ssl.key.password": {"env": "KAFKA_SSL_KEY_PASSWORD"},
        },
    ),
    (
        {REGISTRY_URL: f"https://u:{SECRET}@reg:8081/subjects/orders-value/versions/latest"},
        {"source_class": f"{SOURCES}AvroKafkaSource"},
        {
            "decode.format": "avro",
            "decode.schema_registry.url": "https://reg:8081",
            "decode.subject": "orders-value",
            "decode.schema_registry.access.password": {"env": "SCHEMA_REGISTRY_PASSWORD"},
        },
    ),
    (
        {},
        {"op": "INSERT", "filter_dupes": ""},
        {"table.operation": "insert", "table.duplicates": "drop"},
    ),
    (
        {RECORD_KEY: ""},
        {"op": "BULK_INSERT"},
        {"table.operation": "insert", "table.record_key": []},
    ),
    (
        {RECORD_KEY: "a, b", PARTITION: "c,d"},
        {},
        {"table.record_key": ["a", "b"], "table.partition_by": ["c", "d"]},
    ),
    ({GENERATOR: f"{KEYGEN}NonpartitionedKeyGenerator"}, {}, {"table.partition_by": []}),
    (
        {
            GENERATOR: f"{KEYGEN}TimestampBasedKeyGenerator",
            PARTITION: "at",
            "hoodie.deltastreamer.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
            "hoodie.deltastreamer.keygen.timebased.output.dateformat": "yyyy-MM-dd",
            f"{TIMES}timezone": "Europe/Berlin",
        },
        {},
        {"table.partition_by": ["day(at, Europe/Berlin)"]},
    ),
    (
        {
            GENERATOR: f"{KEYGEN}CustomKeyGenerator",
            PARTITION: "region:SIMPLE,at:timestamp",
            f"{TIMES}timestamp.type": "UNIX_TIMESTAMP",
            f"{TIMES}output.dateformat": "yyyy/MM",
        },
        {},
        {"table.partition_by": ["region", "format(at, yyyy/MM)"]},
    ),
    ({}, {"source_ordering_fields": None}, {"table.merge_mode": "commit_time"}),
    (
        {},
        {"payload_class": f"{MODELS}DefaultHoodieRecordPayload"},
        {"table.merge_mode": "event_time", "table.ordering": ["ts"]},
    ),
    (
        {},
        {"payload_class": f"{MODELS}OverwriteWithLatestAvroPayload"},
        {"table.merge_mode": "commit_time"},
    ),
    (
        {},
        {"payload_class": f"{MODELS}PartialUpdateAvroPayload"},
        {"table.payload": "PartialUpdateAvroPayload", "table.ordering": ["ts"]},
    ),
    (
        {},
        {"payload_class": "org.apache.hudi.payload.AWSDmsAvroPayload"},
        {"table.payload": "AWSDmsAvroPayload"},
    ),
    (
        {},
        {
            "payload_class": f"{MODELS}debezium.MySqlDebeziumAvroPayload",
            "source_ordering_fields": "_event_seq",
        },
        {"table.payload": "MySqlDebeziumAvroPayload"},
    ),
    ({}, {"record_merge_mode": "COMMIT_TIME_ORDERING"}, {"table.merge_mode": "commit_time"}),
    (
        {},
        {"merge_strategy_id": "EEB8D96F-b1e4-49fd-bbf8-28ac514178e5"},
        {"table.merge_mode": "event_time"},
    ),
    ({"hoodie.index.type": "BUCKET"}, {}, {"table.buckets": 256}),
    (
        {"hoodie.index.type": "bucket", "hoodie.bucket.index.num.buckets": "8"},
        {},
        {"table.buckets": 8},
    ),
    (
        {
            "hoodie.index.type": "BUCKET",
            "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
            "hoodie.bucket.index.split.threshold": "1.5",
            "hoodie.parquet.max.file.size": "100000000",
        },
        {},
        {"table.index": "consistent_hashing", "bucket_resizing.split_above_bytes": 150_000_000},
    ),
    ({}, {}, {"table.index": "lookup"}),
    ({"hoodie.index.type": "BLOOM"}, {}, {"table.index": "lookup"}),
    (
        {"hoodie.index.type": "GLOBAL_SIMPLE"},
        {},
        {"table.index": "lookup", "table.partition_change": "move"},
    ),
    (
        {"hoodie.index.type": "RECORD_INDEX"},
        {},
        {"table.index": "lookup", "table.partition_change": "move"},
    ),
    (
        {
            "hoodie.index.type": "RECORD_INDEX",
            "hoodie.metadata.record.index.enable": "true",
            "hoodie.record.index.update.partition.path": "true",
        },
        {},
        {"table.index": "record_index", "table.partition_change": "move"},
    ),
    (
        {
            "hoodie.index.type": "RECORD_LEVEL_INDEX",
            "hoodie.metadata.record.level.index.enable": "true",
        },
        {},
        {"table.index": "partitioned_record_index"},
    ),
    (
        {
            "hoodie.index.type": "RECORD_INDEX",
            "hoodie.metadata.global.record.level.index.enable": "true",
        },
        {"op": "INSERT"},
        {"table.index": "lookup", "table.operation": "insert"},
    ),
    (
        {"hoodie.compact.inline.max.delta.commits": "3"},
        {"disable_compaction": ""},
        {"compaction.after_commits": 3, "compaction.enabled": False},
    ),
    (
        {
            "hoodie.compact.inline.trigger.strategy": "num_and_time",
            "hoodie.compact.inline.max.delta.seconds": "600",
        },
        {},
        {
            "compaction.after_commits": 5,
            "compaction.after": "600s",
            "compaction.when": "all",
        },
    ),
    (
        {
            "hoodie.compact.inline.trigger.strategy": "TIME_ELAPSED",
            "hoodie.compact.inline.max.delta.commits": "3",
        },
        {},
        {"compaction.after_commits": None, "compaction.after": "3600s", "compaction.when": None},
    ),
    (
        {
            "hoodie.compaction.strategy": (
                f"{COMPACTION}DayBasedCompactionStrategy,"
                f"{COMPACTION}PartitionRegexBasedCompactionStrategy"
            ),
            "hoodie.compaction.partition.path.regex": "^2026/",
            "hoodie.compaction.target.io": "1024",
        },
        {},
        {
            "compaction.order": "newest_partitions",
            "compaction.max_partitions": 10,
            "compaction.partitions": ["regex:^2026/"],
            "compaction.max_io_bytes": 1 << 30,
        },
    ),
    (
        {},
        {"continuous": "", "min_sync_interval_seconds": "60"},
        {"run.mode": "continuous", "run.trigger_interval_s": 60, "compaction.mode": "async"},
    ),
    (
        {},
        {
            "continuous": "",
            "post_write_termination_strategy_class": f"{UTILITIES}NoNewDataTerminationStrategy",
        },
        {"run.mode": "once"},
    ),
    (
        {"hoodie.cleaner.policy": "KEEP_LATEST_BY_HOURS", "hoodie.cleaner.hours.retained": "5"},
        {},
        {"cleaning.policy": "keep_latest_by_hours", "cleaning.hours_retained": 5},
    ),
    (
        {"hoodie.clean.commits.retained": "30"},
        {},
        {"archival.min_commits": 40, "archival.max_commits": 50},
    ),
    (
        {"hoodie.keep.min.commits": "25", "hoodie.keep.max.commits": "35"},
        {},
        {"archival.min_commits": 25, "archival.max_commits": 35},
    ),
    (
        {"hoodie.table.services.enabled": "false"},
        {},
        {"compaction.enabled": False, "cleaning.enabled": False, "archival.enabled": False},
    ),
    (
        {
            "hoodie.partition.ttl.inline": "true",
            "hoodie.partition.ttl.strategy.days.retain": "30",
            "hoodie.partition.ttl.management.strategy.type": "KEEP_BY_CREATION_TIME",
        },
        {},
        {"partition_lifetime.days": 30, "partition_lifetime.by": "creation"},
    ),
    (
        {
            "hoodie.clustering.inline": "true",
            "hoodie.clustering.inline.max.commits": "6",
            "hoodie.clustering.plan.strategy.small.file.limit": "1000",
            "hoodie.clustering.plan.strategy.sort.columns": "amount, note,amount",
            "hoodie.clustering.plan.strategy.partition.regex.pattern": "day=2026.*",
            "hoodie.clustering.updates.strategy": "org.apache.hudi.SparkAllowUpdateStrategy",
            "hoodie.clustering.rollback.pending.replacecommit.on.conflict": "true",
            "hoodie.layout.optimize.strategy": "ZORDER",
        },
        {},
        {
            "clustering.enabled": True,
            "clustering.mode": "inline",
            "clustering.after_commits": 6,
            "clustering.small_file_bytes": 1000,
            "clustering.sort_by": ["amount", "note"],
            "clustering.curve": "z-order",
            "clustering.partitions": ["regex:^(?:day=2026.*)$"],
            "clustering.pending": "remove",
        },
    ),
    (
        {
            "hoodie.clustering.async.enabled": "true",
            "hoodie.clustering.plan.strategy.partition.selected": "a,b",
            "hoodie.clustering.plan.strategy.partition.regex.pattern": "c",
        },
        {},
        {
            "clustering.enabled": True,
            "clustering.mode": "background",
            "clustering.partitions": ["a", "b"],
        },
    ),
    (
        {"hoodie.clustering.rollback.pending.replacecommit.on.conflict": "true"},
        {},
        {"clustering.pending": "remove"},
    ),
    (
        {
            "hoodie.clustering.inline": "true",
            "hoodie.clustering.inline.max.commits": "40",
            "hoodie.archive.automatic": "false",
        },
        {},
        {
            "archival.enabled": False,
            "clustering.enabled": True,
            "clustering.mode": "inline",
            "clustering.after_commits": 40,
        },
    ),
    (
        {
            "hoodie.clustering.inline": "true",
            "hoodie.clean.commits.retained": "2",
            "hoodie.keep.min.commits": "3",
            "hoodie.keep.max.commits": "5",
        },
        {},
        {
            "archival.min_commits": 3,
            "archival.max_commits": 5,
            "cleaning.commits_retained": 2,
            "clustering.enabled": True,
            "clustering.mode": "inline",
            "clustering.after_commits": 3,
        },
    ),
    (
        {
            "hoodie.log.compaction.inline": "true",
            "hoodie.compact.inline.max.delta.commits": "20",
        },
        {},
        {"compaction.logs": 5, "compaction.after_commits": 20},
    ),
    (
        {
            "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
            "hoodie.write.lock.provider": f"{LOCKS}StorageBasedLockProvider",
            "hoodie.client.heartbeat.interval_in_ms": "30000",
            EARLY: "true",
        },
        {},
        {
            "concurrency.mode": "multi_writer",
            "concurrency.early_conflict_detection": True,
            "concurrency.lock.provider": "storage",
            "concurrency.heartbeat_interval_s": 30,
        },
    ),
    (
        {
            "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
            "hoodie.write.lock.provider": f"{LOCKS}InProcessLockProvider",
        },
        {},
        {"concurrency.mode": "single_writer"},
    ),
    (
        {
            **SHARED,
            "hoodie.write.lock.provider": f"{LOCKS}ZookeeperBasedLockProvider",
            "hoodie.write.lock.zookeeper.url": "zk1:2181,zk2:2181",
            "hoodie.write.lock.zookeeper.base_path": "/hudi",
            "hoodie.write.lock.zookeeper.session_timeout_ms": "45000",
            "hoodie.write.lock.zookeeper.connection_timeout_ms": "15000",
        },
        {"target_table": "orders"},
        {
            "concurrency.lock.provider": "zookeeper",
            "concurrency.lock.options.hosts": "zk1:2181,zk2:2181",
            "concurrency.lock.options.base_path": "/hudi",
            "concurrency.lock.options.lock_key": "orders",
            "concurrency.lock.options.session_timeout_s": 45.0,
        },
    ),
    (
        {
            **SHARED,
            "hoodie.write.lock.provider": f"{LOCKS}ZookeeperBasedImplicitBasePathLockProvider",
            "hoodie.write.lock.zookeeper.url": "zk1:2181",
        },
        {"target_base_path": "s3a://b/orders/"},
        {
            "concurrency.lock.provider": "zookeeper",
            "concurrency.lock.options.base_path": f"/tmp/{hash_of_path('s3://b/orders/')}",
            "concurrency.lock.options.lock_key": "lock_key",
        },
    ),
    (
        {
            **SHARED,
            "hoodie.write.lock.provider": f"{AWS_LOCKS}DynamoDBBasedLockProvider",
            "hoodie.write.lock.dynamodb.table": "locks",
            "hoodie.write.lock.dynamodb.region": "eu-west-1",
            "hoodie.write.lock.dynamodb.billing_mode": "PROVISIONED",
        },
        {"target_table": "orders"},
        {
            "concurrency.lock.provider": "dynamodb",
            "concurrency.lock.options.table": "locks",
            "concurrency.lock.options.partition_key": "orders",
            "concurrency.lock.options.region": "eu-west-1",
        },
    ),
    (
        {
            **SHARED,
            "hoodie.write.lock.provider": (
                f"{AWS_LOCKS}DynamoDBBasedImplicitPartitionKeyLockProvider"
            ),
            "hoodie.write.lock.dynamodb.table": "locks",
        },
        {"target_base_path": "s3a://b/orders"},
        {"concurrency.lock.options.partition_key": hash_of_path("s3://b/orders")},
    ),
    ({"hoodie.metadata.enable": "false"}, {}, {"table.metadata_table": False}),
    (
        {"hoodie.metrics.on": "true", "hoodie.metrics.reporter.type": "PROMETHEUS"},
        {},
        {"metrics.port": 9090},
    ),
    ({}, {"commit_on_errors": ""}, {"dead_letters.max_share": 1.0}),
    (
        {},
        {"retry_on_source_failures": "", "retry_interval_seconds": "90"},
        {"run.retry.backoff_s": 90, "run.retry.max_attempts": 3},
    ),
    ({"hoodie.table.cdc.enabled": "true"}, {}, {"table.cdc": "data_before_after"}),
    ({"hoodie.logfile.data.block.format": "avro"}, {}, {"table.log_format": "avro"}),
    ({"hoodie.populate.meta.fields": "false"}, {}, {"table.meta_columns": False}),
    (
        {"hoodie.write.table.version": "8"},
        {"table_type": "COPY_ON_WRITE"},
        {"table.version": 8, "table.type": "copy_on_write"},
    ),
    ({}, {"target_base_path": "s3a://b/orders/"}, {"table.path": "s3://b/orders"}),
]


@pytest.mark.parametrize(("properties", "options", "expected"), BECOMES)
def test_property_becomes_a_setting(
    properties: Mapping[str, str], options: dict[str, str | None], expected: Mapping[str, Any]
) -> None:
    found = translated(properties, **options)
    assert found.text is not None, found.problems
    assert {path: settings(found).get(path) for path in expected} == expected
    if "{env:" not in found.text:
        assert check_locally(load_text(found.text))
    assert SECRET not in found.text + render_report(found, job(properties, **options))


@pytest.mark.parametrize(
    ("properties", "options", "mode"),
    [
        ({PAYLOAD: f"{MODELS}DefaultHoodieRecordPayload"}, {}, "event_time"),
        ({PAYLOAD: "DefaultHoodieRecordPayload"}, {}, "event_time"),
        ({"hoodie.compaction.payload.class": f"{MODELS}EventTimeAvroPayload"}, {}, "event_time"),
        ({MERGE_MODE: "EVENT_TIME_ORDERING"}, {}, "event_time"),
        (
            {MERGE_MODE: "event_time_ordering"},
            {"payload_class": f"{MODELS}DefaultHoodieRecordPayload"},
            "event_time",
        ),
        (
            {PAYLOAD: f"{MODELS}DefaultHoodieRecordPayload"},
            {"source_ordering_fields": None},
            "commit_time",
        ),
        (
            {PAYLOAD: f"{MODELS}OverwriteWithLatestAvroPayload"},
            {"merge_mode": "COMMIT_TIME_ORDERING"},
            "commit_time",
        ),
    ],
)
def test_a_property_that_merges_like_the_options_is_complete(
    properties: Mapping[str, str], options: dict[str, str | None], mode: str
) -> None:
    found = translated(properties, **options)
    assert found.is_complete
    assert settings(found)["table.merge_mode"] == mode
    assert "the options make HoodieStreamer merge in the same way" in render_report(
        found, job(properties, **options)
    )


def test_the_port_of_zookeeper_is_explained() -> None:
    port = {"hoodie.write.lock.zookeeper.port": "2182"}
    found = translated(port)
    assert "Apache Hudi does not read it; the port belongs in the url" in render_report(
        found, job(port)
    )


#: Properties that HoodieStreamer ignores, with options that make it merge in another way.
IGNORED: list[tuple[str, str, dict[str, str | None], str]] = [
    (PAYLOAD, f"{MODELS}OverwriteWithLatestAvroPayload", {}, "--payload-class"),
    (PAYLOAD, f"{MODELS}PartialUpdateAvroPayload", {}, "--payload-class"),
    (PAYLOAD, OWN_CLASS, {}, "--payload-class"),
    (
        PAYLOAD,
        f"{MODELS}DefaultHoodieRecordPayload",
        {"merge_mode": "COMMIT_TIME_ORDERING"},
        "--payload-class",
    ),
    (
        MERGE_MODE,
        "EVENT_TIME_ORDERING",
        {"payload_class": f"{MODELS}OverwriteWithLatestAvroPayload"},
        "--merge-mode",
    ),
]

#: Properties and options that change rows and have no counterpart, with a word of the remedy.
CHANGES_ROWS: list[tuple[dict[str, str], dict[str, str | None], str, str]] = [
    ({}, {"payload_class": OWN_CLASS}, "--payload-class", "write a merger in Python"),
    ({}, {"merge_mode": "CUSTOM"}, "--merge-mode", "table.merger"),
    ({GENERATOR: OWN_CLASS}, {}, GENERATOR, "no key generator com.example.Own"),
    ({GENERATOR: f"{KEYGEN}GlobalDeleteKeyGenerator"}, {}, GENERATOR, "no key generator"),
    (
        {GENERATOR: f"{KEYGEN}TimestampBasedKeyGenerator", f"{TIMES}timestamp.type": "DATE_STRING"},
        {},
        f"{TIMES}timestamp.type",
        "DATE_STRING",
    ),
    ({}, {"schemaprovider_class": OWN_CLASS}, "--schemaprovider-class", "--source-schema"),
    (
        {REGISTRY_URL: "http://r/subjects/o/versions/1"},
        {"schemaprovider_class": f"{SCHEMAS}SchemaRegistryProvider"},
        "--schemaprovider-class",
        "--source-schema",
    ),
    ({}, {"transformer_class": OWN_CLASS}, "--transformer-class", "--source-schema"),
    ({}, {"op": "INSERT_OVERWRITE"}, "--op", "a pipeline upserts or inserts"),
    ({"auto.offset.reset": "group"}, {}, "auto.offset.reset", "offsets of the group"),
    (
        {"hoodie.merge.allow.duplicate.on.inserts": "false"},
        {"op": "INSERT"},
        "hoodie.merge.allow.duplicate.on.inserts",
        "as a second row",
    ),
    (
        {"hoodie.index.type": "RECORD_INDEX"},
        {"op": "INSERT", "filter_dupes": ""},
        "--filter-dupes",
        "any partition",
    ),
    ({"hoodie.index.type": "INMEMORY"}, {}, "hoodie.index.type", "no such index"),
    ({"hoodie.index.type": "RECORD_INDEX"}, {}, "hoodie.index.type", "moves to the new partition"),
    (
        {
            "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
            "hoodie.record.index.update.partition.path": "false",
        },
        {},
        "hoodie.record.index.update.partition.path",
        "moves to the new partition",
    ),
    (
        {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.hash.field": "other"},
        {},
        "hoodie.bucket.index.hash.field",
        "hashes the whole record key",
    ),
    (
        {"hoodie.write.concurrency.mode": "OTHER"},
        {},
        "hoodie.write.concurrency.mode",
        "NON_BLOCKING_CONCURRENCY_CONTROL",
    ),
    (
        {
            "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
            "hoodie.write.lock.provider": HIVE_LOCK,
        },
        {},
        "hoodie.write.lock.provider",
        "StorageBasedLockProvider",
    ),
    (
        {**SHARED, "hoodie.write.lock.provider": f"{LOCKS}ZookeeperBasedLockProvider"},
        {},
        "hoodie.write.lock.zookeeper.url",
        "set concurrency.lock.options.hosts",
    ),
    (
        {"hoodie.deltastreamer.source.json.kafka.processor.class": OWN_CLASS},
        {},
        "hoodie.streamer.source.json.kafka.processor.class",
        "steps of transform",
    ),
    ({"hoodie.precommit.validators": OWN_CLASS}, {}, "hoodie.precommit.validators", "steps"),
    ({"hoodie.of.a.later.release": "x"}, {}, "hoodie.of.a.later.release", "no such property"),
    (
        {"hoodie.streamer.source.kafka.maxEvents": "5"},
        {},
        "hoodie.streamer.source.kafka.maxEvents",
        "did you mean hoodie.streamer.kafka.source.maxEvents?",
    ),
    ({f"{KAFKA}append.offsets": "true"}, {}, f"{KAFKA}append.offsets", "write a new table"),
    ({f"{KAFKA}topic": ""}, {}, f"{KAFKA}topic", "it is missing"),
    ({}, {"source_class": f"{SOURCES}SqlSource"}, "--source-class", "tables of Hudi; org.apache"),
    ({}, {"source_class": None}, "--source-class", "it is missing"),
    (
        {},
        {"source_class": f"{SOURCES}debezium.MysqlDebeziumSource"},
        "--source-class",
        "--source-s",
    ),
    ({}, {"target_base_path": None}, "--target-base-path", "add it after --"),
    ({}, {"target_base_path": "hdfs://n/orders"}, "--target-base-path", "not a kind of store"),
    ({"hoodie.table.precombine.field": "b"}, {}, "hoodie.table.ordering.fields", "merges by"),
    *(
        ({name: value}, options, name, f"the option {option}")
        for name, value, options, option in IGNORED
    ),
]


@pytest.mark.parametrize(
    ("pattern", "remedy"),
    [
        ("yyyy/MM/dd", "at as timestamp, and set table.partition_by: [region, day(at)]"),
        ("yyyyMM", "at as timestamp, and set table.partition_by: [region, format(at, yyyyMM)]"),
        ("EEE", "lakemark formats only"),
    ],
)
def test_folders_of_times_that_are_texts_need_a_new_table(pattern: str, remedy: str) -> None:
    found = translated(
        {
            GENERATOR: f"{KEYGEN}CustomKeyGenerator",
            PARTITION: "region:SIMPLE,at:TIMESTAMP",
            f"{TIMES}timestamp.type": "DATE_STRING",
            f"{TIMES}output.dateformat": pattern,
        }
    )
    text = missing(found, changes_rows=True)[f"{TIMES}timestamp.type"]
    assert remedy in text
    assert text.endswith("with Apache Hudi") == (pattern == "EEE")


@pytest.mark.parametrize(
    ("properties", "comment"),
    [
        ({}, "# Like the default index of Apache Hudi, it looks up keys."),
        ({"hoodie.index.type": "BLOOM"}, "# Like the index BLOOM of Apache Hudi, it looks up"),
        ({"hoodie.index.type": "GLOBAL_SIMPLE"}, "# Like the index GLOBAL_SIMPLE of Apache Hudi"),
    ],
)
def test_an_index_of_lookups_is_explained(properties: dict[str, str], comment: str) -> None:
    text = translated(properties).text
    assert text is not None
    assert comment in text


@pytest.mark.parametrize("kind", ["EPOCHMILLISECONDS", "DATE_STRING"])
def test_columns_that_a_new_table_needs_for_its_folders_are_explained(kind: str) -> None:
    """Numbers have no folders; texts become timestamps when the columns are inferred."""
    found = translated(
        {
            GENERATOR: f"{KEYGEN}TimestampBasedKeyGenerator",
            PARTITION: "at",
            f"{TIMES}timestamp.type": kind,
            f"{TIMES}input.dateformat": "yyyy-MM-dd",
            f"{TIMES}output.dateformat": "yyyy-MM-dd",
        }
    )
    assert found.text is not None
    explained = "at must be of type timestamp" in " ".join(found.text.split())
    assert explained == (kind == "EPOCHMILLISECONDS")


@pytest.mark.parametrize(("properties", "options", "name", "remedy"), CHANGES_ROWS)
def test_property_that_changes_rows_makes_the_translation_incomplete(
    properties: Mapping[str, str], options: dict[str, str | None], name: str, remedy: str
) -> None:
    found = translated(properties, **options)
    assert not found.is_complete
    assert remedy in missing(found, changes_rows=True)[name]
    if found.text is None:
        assert found.problems


@pytest.mark.parametrize(
    ("properties", "options", "name"),
    [
        ({"hoodie.clustering.schedule.inline": "true"}, {}, "hoodie.clustering.schedule.inline"),
        (
            {"hoodie.clustering.inline": "true", "hoodie.index.type": "BUCKET"},
            {},
            "hoodie.clustering.inline",
        ),
        (
            {
                "hoodie.clustering.inline": "true",
                "hoodie.clustering.inline.max.commits": "30",
                "hoodie.clustering.plan.strategy.small.file.limit": "300 MB",
            },
            {},
            "hoodie.clustering.inline.max.commits",
        ),
        (
            {
                "hoodie.clustering.inline": "true",
                "hoodie.clustering.plan.strategy.max.num.groups": "0",
            },
            {},
            "hoodie.clustering.plan.strategy.max.num.groups",
        ),
        (
            {
                "hoodie.clustering.async.enabled": "true",
                "hoodie.clustering.plan.partition.filter.mode": "RECENT_DAYS",
            },
            {},
            "hoodie.clustering.plan.partition.filter.mode",
        ),
        (
            {
                "hoodie.clustering.inline": "true",
                "hoodie.clustering.plan.strategy.class": OWN_CLASS,
            },
            {},
            "hoodie.clustering.plan.strategy.class",
        ),
        ({"hoodie.log.compaction.inline": "true"}, {}, "hoodie.log.compaction.inline"),
        ({}, {"enable_sync": ""}, "--enable-sync"),
        ({"hoodie.write.commit.callback.on": "true"}, {}, "hoodie.write.commit.callback.on"),
        ({"a.custom.property": "1"}, {}, "a.custom.property"),
        ({"hoodie.compaction.strategy": OWN_CLASS}, {}, "hoodie.compaction.strategy"),
        (
            {"hoodie.compact.inline.max.delta.commits": "few"},
            {},
            "hoodie.compact.inline.max.delta.commits",
        ),
        ({"hoodie.keep.min.commits": "many"}, {}, "hoodie.keep.min.commits"),
        ({"hoodie.metrics.on": "true"}, {}, "hoodie.metrics.on"),
        ({"hoodie.parquet.max.file.size": "1000"}, {}, "hoodie.parquet.max.file.size"),
    ],
)
def test_property_that_changes_no_rows_is_listed(
    properties: Mapping[str, str], options: dict[str, str | None], name: str
) -> None:
    found = translated(properties, **options)
    assert found.is_complete
    assert name in missing(found, changes_rows=False)


@pytest.mark.parametrize(
    ("properties", "options"),
    [
        ({"hoodie.merge.allow.duplicate.on.inserts": "false"}, {}),
        ({"hoodie.merge.allow.duplicate.on.inserts": "true"}, {"op": "INSERT"}),
        (
            {"hoodie.index.type": "RECORD_INDEX", PARTITION: ""},
            {"op": "INSERT", "filter_dupes": ""},
        ),
        ({"hoodie.index.type": "RECORD_INDEX"}, {"op": "INSERT"}),
    ],
)
def test_inserts_and_upserts_with_the_same_rows_are_complete(
    properties: dict[str, str], options: dict[str, str | None]
) -> None:
    found = translated(properties, **options)
    assert found.is_complete, missing(found, changes_rows=True)


TTL = "hoodie.partition.ttl."


@pytest.mark.parametrize(
    "properties",
    [
        {f"{TTL}strategy.days.retain": "30", "hoodie.table.services.enabled": "false"},
        {f"{TTL}strategy.days.retain": "-1"},
        {f"{TTL}strategy.days.retain": "0", f"{TTL}strategy.max.delete.partitions": "5"},
        {},
    ],
)
def test_partitions_that_do_not_expire_in_the_job_are_kept(properties: dict[str, str]) -> None:
    found = translated({f"{TTL}inline": "true", **properties})
    assert found.is_complete, found.problems
    assert found.config is not None
    assert found.config.partition_lifetime.days is None


def test_current_name_wins_over_a_former_name() -> None:
    """As in Apache Hudi; the former name is listed."""
    properties = {"hoodie.clean.commits.retained": "3", "hoodie.cleaner.commits.retained": "4"}
    found = translated(properties)
    assert settings(found)["cleaning.commits_retained"] == 3
    report = render_report(found, job(properties))
    assert "hoodie.cleaner.commits.retained: HoodieStreamer uses hoodie.clean.commits.r" in report


def test_option_wins_over_a_file() -> None:
    found = translated({"hoodie.keep.min.commits": "25"}, hoodie_conf="hoodie.keep.min.commits=28")
    assert settings(found)["archival.min_commits"] == 28


#: Valid values of all kinds of properties and options. With the defaults, a job has some of them.
CHOICES: Mapping[str, list[str]] = {
    "auto.offset.reset": ["earliest", "latest", "group"],
    "security.protocol": ["SASL_SSL"],
    "sasl.jaas.config": [f'x.PlainLoginModule required username="u" password="{SECRET}";'],
    "schema.registry.url": ["http://r:1", f"https://u:{SECRET}@r:1"],
    "basic.auth.user.info": [f"u:{SECRET}"],
    REGISTRY_URL: [f"https://u:{SECRET}@r/subjects/s/versions/latest"],
    f"{KAFKA}append.offsets": ["true", "false"],
    "hoodie.index.type": ["BUCKET", "SIMPLE", "BLOOM", "GLOBAL_BLOOM", "RECORD_INDEX"],
    "hoodie.index.bucket.engine": ["SIMPLE", "CONSISTENT_HASHING"],
    "hoodie.bucket.index.num.buckets": ["4"],
    "hoodie.clean.automatic": ["true", "false"],
    "hoodie.cleaner.commits.retained": ["1", "40"],
    "hoodie.keep.min.commits": ["20", "5"],
    "hoodie.keep.max.commits": ["30"],
    "hoodie.archive.automatic": ["true", "false"],
    "hoodie.table.services.enabled": ["true", "false"],
    "hoodie.metadata.enable": ["true", "false"],
    "hoodie.write.concurrency.mode": [
        "SINGLE_WRITER",
        "OPTIMISTIC_CONCURRENCY_CONTROL",
        "NON_BLOCKING_CONCURRENCY_CONTROL",
    ],
    "hoodie.write.lock.provider": [
        f"{LOCKS}{name}LockProvider" for name in ("InProcess", "StorageBased", "ZookeeperBased")
    ]
    + [f"{AWS_LOCKS}DynamoDBBasedImplicitPartitionKeyLockProvider", HIVE_LOCK],
    EARLY: ["true", "false"],
    "hoodie.write.lock.zookeeper.url": ["zk:2181"],
    "hoodie.write.lock.zookeeper.session_timeout_ms": ["1500", "soon"],
    "hoodie.write.lock.dynamodb.table": ["locks"],
    "hoodie.write.lock.dynamodb.partition_key": ["orders"],
    "hoodie.logfile.data.block.format": ["parquet", "avro", "hfile"],
    "hoodie.table.cdc.enabled": ["true", "false"],
    "hoodie.write.table.version": ["6", "8", "9"],
    "hoodie.partition.ttl.inline": ["true", "false"],
    "hoodie.partition.ttl.strategy.days.retain": ["30"],
    "hoodie.errortable.enable": ["true"],
    "hoodie.populate.meta.fields": ["true", "false"],
    "hoodie.streamer.schemaprovider.target.schema.file": ["/none/target.avsc"],
    "hoodie.unknown": ["x"],
    "unknown": [f"password={SECRET}"],
    "--table-type": ["MERGE_ON_READ", "COPY_ON_WRITE"],
    "--op": ["UPSERT", "INSERT", "BULK_INSERT", "DELETE"],
    "--source-class": [f"{SOURCES}AvroKafkaSource", f"{SOURCES}JsonKafkaSource", OWN_CLASS],
    "--schemaprovider-class": [f"{SCHEMAS}SchemaRegistryProvider", OWN_CLASS],
    "--transformer-class": [f"{TRANSFORMS}FlatteningTransformer", OWN_CLASS],
    "--payload-class": [f"{MODELS}DefaultHoodieRecordPayload", OWN_CLASS],
    "--merge-mode": ["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING", "CUSTOM"],
    "--source-limit": ["1000"],
    "--min-sync-interval-seconds": ["10"],
    "--checkpoint": ["orders,0:1", "nonsense"],
    "--continuous": [""],
    "--disable-compaction": [""],
    "--filter-dupes": [""],
    "--commit-on-errors": [""],
    "--enable-sync": [""],
}


@given(
    chosen=st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(values) for name, values in CHOICES.items()}
    )
)
def test_each_option_is_explained_and_each_printed_pipeline_is_valid(
    chosen: dict[str, str],
) -> None:
    properties = {name: value for name, value in chosen.items() if not name.startswith("--")}
    options: dict[str, str | None] = {
        name.removeprefix("--").replace("-", "_"): value
        for name, value in chosen.items()
        if name.startswith("--")
    }
    given_job = job(properties, **options)
    found = translate(given_job)
    explained = {name for one in found.outcomes for name in one.names}
    assert set(given_job.values) <= explained
    report = render_report(found, given_job)
    assert SECRET not in report + (found.text or "")
    if found.text is None:
        assert found.problems and not found.is_complete
    else:
        load_text(found.text)
