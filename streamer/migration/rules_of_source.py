"""Rules: the topic, its records and their schema, and the transformers.

Source: ``HoodieStreamer.Config``, ``KafkaSourceConfig``, ``HoodieStreamerConfig``,
``HoodieSchemaProviderConfig`` and ``SqlTransformerConfig`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from streamer.migration.rule import Combined, NoCounterpart, NoEffect, Rule

#: The effect of a property that is passed to Kafka's consumer.
CONSUMER = Combined("`source.consumer`; a secret becomes `{env: NAME}`")
_SCHEMA = Combined("`decode.schema: {avro: PATH}`")
_REGISTRY = Combined(
    "`decode.schema_registry`, with the part before `/subjects`; `decode.subject`; credentials "
    "become `{env: NAME}`"
)
_ACCESS = Combined("`decode.schema_registry.access`; a secret becomes `{env: NAME}`")
_PEM = NoCounterpart(
    "convert the store to PEM files, and name them in decode.schema_registry.access (ca_file, "
    "certificate_file and key_file)"
)
_MULTI_TABLE = NoEffect("it belongs to HoodieMultiTableStreamer")
_TIMING = NoEffect("lakemark's requests to Kafka have their own timeouts and retries")
_CUSTOM_SCHEMA = NoCounterpart(
    "write the schema that the schema provider returns to a file, and name the file with "
    "--source-schema",
    changes_rows=True,
)

STREAMER = "hoodie.streamer."
_KAFKA = f"{STREAMER}source.kafka."
_INCREMENTAL = f"{STREAMER}source.hoodieincr."
_PROVIDER = f"{STREAMER}schemaprovider."
_REGISTRY_OF = f"{_PROVIDER}registry."

SOURCE_RULES = (
    Rule(
        "--source-class",
        Combined(
            "`decode.format`: `JsonKafkaSource` becomes `json` and `AvroKafkaSource` `avro`; "
            "`MysqlDebeziumSource` and `PostgresDebeziumSource` become `debezium`; "
            "`JsonDFSSource`, `CsvDFSSource`, `ParquetDFSSource` and `AvroDFSSource` become "
            "`source.kind: files`, and `HoodieIncrSource` becomes `source.kind: table`; other "
            "sources have no counterpart"
        ),
    ),
    Rule(f"{STREAMER}source.dfs.root", Combined("`source.path` of files")),
    Rule(f"{_INCREMENTAL}path", Combined("`source.path` of a table")),
    Rule(f"{_INCREMENTAL}num_instants", Combined("`source.max_commits_per_batch` of a table")),
    Rule(
        f"{_INCREMENTAL}missing.checkpoint.strategy",
        Combined(
            "`source.start_at` of a table: `snapshot` for `READ_UPTO_LATEST_COMMIT`, `latest` for "
            "`READ_LATEST`"
        ),
    ),
    Rule(
        f"{_INCREMENTAL}read_latest_on_missing_ckpt",
        Combined("`source.start_at: latest` of a table, whatever the strategy is"),
    ),
    Rule(
        f"{_INCREMENTAL}drop.all.meta.fields.from.source",
        NoEffect("the meta columns of the table are never read; each table has its own"),
    ),
    Rule(f"{_INCREMENTAL}file.format", NoEffect("the names of the files show their format")),
    Rule(
        f"{_INCREMENTAL}partition.*",
        NoCounterpart(
            "the files must have the partition columns, or add them with a step of transform",
            changes_rows=True,
        ),
    ),
    Rule(f"{STREAMER}csv.header", Combined("`source.header` of files")),
    Rule(f"{STREAMER}csv.sep", Combined("`decode.delimiter` of CSV files")),
    Rule(f"{STREAMER}csv.nullValue", Combined("`decode.null_text` of CSV files")),
    Rule(
        f"{STREAMER}csv.*",
        NoCounterpart("lakemark reads CSV as RFC 4180 says; check the files", changes_rows=True),
    ),
    Rule(f"{_KAFKA}topic", Combined("`source.topic`")),
    Rule("bootstrap.servers", Combined("`source.bootstrap_servers`")),
    Rule(
        "auto.offset.reset",
        Combined(
            "`source.starting_offsets`, which counts only if the table has no checkpoint; "
            "`latest` if it is not given; `group` has no counterpart"
        ),
    ),
    Rule("isolation.level", Combined("`source.isolation_level`")),
    Rule(
        "--source-limit",
        Combined("`source.max_records_per_batch`; of files, `source.max_bytes_per_batch`"),
    ),
    Rule(f"{STREAMER}kafka.source.maxEvents", Combined("`source.max_records_per_batch`")),
    Rule(
        f"{_KAFKA}enable.failOnDataLoss",
        Combined("`source.on_offset_out_of_range`: `fail`, or `earliest` for `false`"),
    ),
    Rule(
        f"{_KAFKA}append.offsets",
        Combined(
            "`source.metadata_columns`; two of its columns have other types than those of the job, "
            "so the table of the job is not continued"
        ),
    ),
    Rule(f"{_KAFKA}enable.commit.offset", Combined("`source.commit_group`")),
    Rule("group.id", Combined("`source.commit_group`, if offsets are committed to the group")),
    Rule(
        "--checkpoint",
        Combined(
            "`source.starting_offsets`, `source.modified_after` of files, or `source.start_at` of "
            "a table, which counts only if the written table has no checkpoint; else it has the "
            "position that the job reached"
        ),
    ),
    Rule(f"{_KAFKA}checkpoint.type", Combined("the form of `--checkpoint`")),
    Rule(
        "--initial-checkpoint-provider",
        NoCounterpart(
            "set the offsets with lakemark checkpoint set, unless the table has a checkpoint "
            "already",
            changes_rows=True,
        ),
    ),
    Rule(
        f"{STREAMER}checkpoint.provider.path",
        NoCounterpart("see --initial-checkpoint-provider; alone, it has no effect"),
    ),
    Rule(
        "--ignore-checkpoint",
        NoCounterpart(
            "a pipeline continues at the checkpoint of the table; if the job has not yet applied "
            "the option, run lakemark checkpoint reset TABLE --run"
        ),
    ),
    Rule(
        f"{STREAMER}checkpoint.force.skip",
        NoCounterpart(
            "a pipeline always commits its offsets; use another source.checkpoint_id for a "
            "backfill",
            changes_rows=True,
            unless=("false", ""),
        ),
    ),
    Rule(
        "--allow-commit-on-no-checkpoint-change",
        NoEffect("a pipeline publishes no commit if no record has arrived"),
        takes_value=False,
    ),
    Rule(
        f"{_KAFKA}offset.skip.buffer.minutes",
        NoCounterpart(
            "source.on_offset_out_of_range: earliest continues at the first record that exists",
            unless=("-1",),
        ),
    ),
    Rule(
        f"{_KAFKA}ignore.prefix.config.list",
        Combined("properties with these prefixes are omitted from `source.consumer`"),
    ),
    Rule(f"{_KAFKA}minPartitions", NoEffect("lakemark divides a batch by itself")),
    Rule(f"{_KAFKA}spark.sql.consumer.enable", NoEffect("lakemark always reads with Spark SQL")),
    Rule(f"{_KAFKA}fetch_partition.time.out", _TIMING),
    Rule(f"{_KAFKA}retry.*", _TIMING),
    Rule("--retry-on-source-failures", Combined("`run.retry`"), takes_value=False),
    Rule("--retry-interval-seconds", Combined("`run.retry.backoff_s`")),
    Rule("--max-retry-count", Combined("`run.retry.max_attempts`")),
    Rule(
        f"{STREAMER}source.sanitize.invalid.schema.field.names",
        NoCounterpart(
            "rename the fields with decode.aliases or the step rename",
            changes_rows=True,
            unless=("false", ""),
        ),
    ),
    Rule(
        f"{STREAMER}source.sanitize.invalid.char.mask",
        NoEffect("it belongs to the sanitizing of field names"),
    ),
    Rule(
        f"{STREAMER}source.json.kafka.processor.class",
        NoCounterpart(
            "replace the processor by steps of transform, such as python", changes_rows=True
        ),
    ),
    Rule(
        f"{STREAMER}source.json.kafka.post.processor.maxwell.*",
        NoEffect("it belongs to the processor of JSON records"),
    ),
    Rule(
        f"{STREAMER}source.json.skip.invalid.records",
        Combined("`dead_letters.max_share: 1.0`: the records are kept in the dead-letter table"),
    ),
    Rule(
        "hoodie.debezium.override.initial.checkpoint.key",
        NoCounterpart("set the offsets with lakemark checkpoint set", changes_rows=True),
    ),
    Rule(
        f"{STREAMER}transformer.debezium.*",
        NoCounterpart(
            "look at the columns of the table, and adapt the steps of transform", changes_rows=True
        ),
    ),
    Rule(f"{_KAFKA}proto.value.deserializer.class", NoEffect("it belongs to ProtoKafkaSource")),
    Rule(
        f"{_KAFKA}value.deserializer.class",
        Combined(
            "`decode.wire_format`: `plain` for `ByteArrayDeserializer`, else `confluent`; the "
            "defaults that `KafkaAvroSchemaDeserializer` sets have no counterpart, nor have other "
            "deserializers"
        ),
    ),
    Rule(
        f"{_KAFKA}value.deserializer.schema",
        NoEffect("HoodieStreamer itself sets it, from the schema provider"),
    ),
    Rule("key.deserializer", NoEffect("HoodieStreamer itself sets it")),
    Rule("value.deserializer", NoEffect("HoodieStreamer itself sets it")),
    Rule("enable.auto.commit", NoEffect("the table records the offsets")),
    Rule("auto.commit.interval.ms", NoEffect("the table records the offsets")),
    Rule(
        "interceptor.classes",
        NoCounterpart(
            "Spark's connector to Kafka allows no interceptors; replace them by steps of transform",
            changes_rows=True,
        ),
    ),
    *(
        Rule(name, CONSUMER)
        for name in (
            "security.*",
            "sasl.*",
            "ssl.*",
            "fetch.*",
            "max.*",
            "metadata.*",
            "metrics.*",
            "metric.reporters",
            "reconnect.*",
            "retry.backoff.*",
            "socket.*",
            "allow.auto.create.topics",
            "check.crcs",
            "client.*",
            "connections.max.idle.ms",
            "default.api.timeout.ms",
            "enable.metrics.push",
            "exclude.internal.topics",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "heartbeat.interval.ms",
            "partition.assignment.strategy",
            "receive.buffer.bytes",
            "request.timeout.ms",
            "send.buffer.bytes",
            "session.timeout.ms",
        )
    ),
)

SCHEMA_RULES = (
    Rule(
        "--schemaprovider-class",
        Combined(
            "`FilebasedSchemaProvider` becomes `decode.schema`, and `SchemaRegistryProvider` with "
            "Avro records and the latest version `decode.schema_registry`; without a provider, "
            "`decode.schema: infer` and `decode.unknown_fields: evolve`; others have no "
            "counterpart but `--source-schema`"
        ),
    ),
    Rule(f"{_PROVIDER}source.schema.file", _SCHEMA),
    Rule(
        f"{_PROVIDER}target.schema.file",
        Combined(
            "nothing, if its columns are those after the last step of `transform`; else it has no "
            "counterpart"
        ),
    ),
    Rule(f"{_REGISTRY_OF}url", _REGISTRY),
    Rule(f"{_REGISTRY_OF}baseUrl", _MULTI_TABLE),
    Rule(f"{_REGISTRY_OF}urlSuffix", _MULTI_TABLE),
    Rule(f"{_REGISTRY_OF}sourceUrlSuffix", _MULTI_TABLE),
    Rule(f"{_REGISTRY_OF}targetUrlSuffix", _MULTI_TABLE),
    Rule(
        f"{_REGISTRY_OF}targetUrl",
        Combined("nothing, if it is the same as `registry.url`; else it has no counterpart"),
    ),
    Rule(f"{_REGISTRY_OF}schemaconverter", _CUSTOM_SCHEMA),
    Rule(f"{_PROVIDER}source.schema.jdbc.*", NoEffect("it belongs to JdbcbasedSchemaProvider")),
    Rule(f"{_PROVIDER}source.schema.hive.*", NoEffect("it belongs to HiveSchemaProvider")),
    Rule(f"{_PROVIDER}target.schema.hive.*", NoEffect("it belongs to HiveSchemaProvider")),
    Rule(f"{_PROVIDER}proto.*", NoEffect("it belongs to ProtoClassBasedSchemaProvider")),
    Rule(f"{_PROVIDER}schema_post_processor", _CUSTOM_SCHEMA),
    Rule(f"{_PROVIDER}schema_post_processor.*", NoEffect("it belongs to the schema processor")),
    Rule(
        f"{STREAMER}schema.make.columns.nullable",
        NoEffect("the columns of lakemark's rows are nullable"),
    ),
    Rule("schema.registry.url", _REGISTRY),
    Rule("basic.auth.credentials.source", _ACCESS),
    Rule("basic.auth.user.info", _ACCESS),
    Rule("schema.registry.basic.auth.user.info", _ACCESS),
    Rule("bearer.auth.token", _ACCESS),
    Rule("bearer.auth.credentials.source", _ACCESS),
    Rule("schema.registry.ssl.*", _PEM),
    Rule("specific.avro.reader", NoEffect("records are read as generic records")),
    Rule("auto.register.schemas", NoEffect("it belongs to producers")),
    Rule("use.latest.version", NoEffect("it belongs to producers")),
    Rule("key.subject.name.strategy", NoEffect("it belongs to producers")),
    Rule("value.subject.name.strategy", NoEffect("it belongs to producers")),
)

TRANSFORM_RULES = (
    Rule(
        "--transformer-class",
        Combined(
            "`transform`: `SqlQueryBasedTransformer` and `SqlFileBasedTransformer` become a step "
            "`sql`, `FlatteningTransformer` a step `flatten`, `AWSDmsTransformer` a step `add`; "
            "several classes become several steps; others have no counterpart"
        ),
    ),
    Rule(f"{STREAMER}transformer.sql", Combined("the `query` of a step `sql`")),
    Rule(f"{STREAMER}transformer.sql.file", Combined("the `query` of a step `sql`")),
    Rule(f"{STREAMER}transformer.sql.*", Combined("the `query` of a step `sql`")),
    Rule(
        f"{STREAMER}transformer.class",
        NoEffect("it belongs to HoodieMultiTableStreamer; --transformer-class counts"),
    ),
    Rule(
        f"{STREAMER}ingestion.*",
        NoEffect("it belongs to HoodieMultiTableStreamer; migrate one table at a time"),
    ),
)
