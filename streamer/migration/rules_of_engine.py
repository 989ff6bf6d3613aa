"""Rules: catalogs, metrics and callbacks, bootstrap, and how Apache Hudi and Spark execute a write.

Source: ``HoodieStreamer.Config``, ``HoodieSyncConfig``, ``HoodieMetricsConfig``,
``HoodieWriteCommitCallbackConfig``, ``HoodieBootstrapConfig`` and ``HoodieWriteConfig`` of Apache
Hudi 1.2.0.
"""

from __future__ import annotations

from streamer.migration.rule import Combined, NoCounterpart, NoEffect, Rule

_SYNC = Combined(
    "[`catalogs`](catalogs.md), for a Hive metastore and AWS Glue; for other catalogs, run a sync "
    "tool of Apache Hudi as a separate job"
)
_SYNC_DETAIL = NoEffect("it belongs to the sync to a catalog")
_BOOTSTRAP = NoCounterpart(
    "lakemark does not bootstrap tables; create the table with Apache Hudi",
    changes_rows=True,
    unless=("false", ""),
)
_BOOTSTRAP_DETAIL = NoEffect("it belongs to the bootstrap of a table")
_EXECUTION = NoEffect("it tunes how Apache Hudi executes a write on Spark")
_QUERY = NoEffect("it applies to queries")
_SQL = NoEffect("it applies to Spark SQL")
_STREAMING = NoEffect("it applies to the sink of Spark Structured Streaming")
_INTERNAL = NoEffect("Apache Hudi itself sets it")
_CALLBACK = NoCounterpart(
    "add a hook of the kind http or kafka, with format hudi (docs/hooks.md)", unless=("false", "")
)
_METRICS = NoEffect("it belongs to a reporter of metrics without counterpart")

CATALOG_RULES = (
    Rule("--enable-sync", _SYNC, takes_value=False),
    Rule("--enable-hive-sync", _SYNC, takes_value=False),
    Rule("--sync-tool-classes", _SYNC),
    *(
        Rule(name, _SYNC)
        for name in (
            "hoodie.datasource.meta.sync.enable",
            "hoodie.datasource.hive_sync.enable",
            "hoodie.datasource.hive_sync.database",
            "hoodie.datasource.hive_sync.table",
            "hoodie.datasource.hive_sync.metastore.uris",
            "hoodie.datasource.hive_sync.auto_create_database",
            "hoodie.datasource.hive_sync.table.strategy",
            "hoodie.datasource.hive_sync.skip_ro_suffix",
            "hoodie.datasource.hive_sync.table_properties",
        )
    ),
    Rule("--force-empty-sync", _SYNC_DETAIL, takes_value=False),
    *(
        Rule(name, _SYNC_DETAIL)
        for name in (
            "hoodie.datasource.hive_sync.*",
            "hoodie.datasource.meta.sync.*",
            "hoodie.datasource.meta_sync.*",
            "hoodie.datasource.partition_extractor_class",
            "hoodie.table.partition_extractor_class",
            "hoodie.meta.sync.*",
            "hoodie.meta_sync.*",
            "hoodie.gcp.bigquery.sync.*",
        )
    ),
    Rule("hoodie.aws.*", NoEffect("it belongs to services of AWS that lakemark does not use")),
    Rule(
        "hoodie.metaserver.enabled",
        NoCounterpart(
            "lakemark keeps the timeline in the table only", changes_rows=True, unless=("false", "")
        ),
    ),
    Rule("hoodie.metaserver.*", NoEffect("it belongs to the metaserver")),
)

OBSERVATION_RULES = (
    Rule("hoodie.metrics.on", Combined("`metrics.port`, for the reporter `PROMETHEUS`")),
    Rule("hoodie.metrics.reporter.type", Combined("`metrics.port`, for `PROMETHEUS`")),
    Rule("hoodie.metrics.prometheus.port", Combined("`metrics.port`")),
    Rule("hoodie.metrics.*", _METRICS),
    Rule("hoodie.metricscompaction.log.blocks.on", _METRICS),
    Rule("--ingestion-metrics-class", _METRICS),
    Rule("hoodie.write.commit.callback.on", _CALLBACK),
    Rule("hoodie.write.commit.callback.*", NoEffect("it belongs to the callback of commits")),
    Rule("hoodie.sensitive.config.keys", NoEffect("lakemark masks secrets by name and by value")),
)

EVOLUTION_RULES = (
    Rule(
        "hoodie.datasource.write.reconcile.schema",
        NoEffect("a column that the records lack is kept, and null in their rows"),
    ),
    Rule(
        "hoodie.write.set.null.for.missing.columns",
        NoEffect("a column that the records lack is kept, and null in their rows"),
    ),
    Rule(
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
        NoCounterpart("lakemark drops no columns", changes_rows=True, unless=("false", "")),
    ),
    Rule(
        "hoodie.schema.on.read.enable",
        NoCounterpart(
            "lakemark does not write tables with schema on read; continue the table with Apache "
            "Hudi",
            changes_rows=True,
            unless=("false", ""),
        ),
    ),
    Rule("hoodie.avro.schema", NoEffect("HoodieStreamer itself sets it, from the schema provider")),
    Rule("hoodie.avro.schema.*", NoEffect("a record that does not fit goes to the dead letters")),
    Rule("hoodie.internal.schema", _INTERNAL),
    Rule("hoodie.write.schema", _INTERNAL),
    Rule("hoodie.write.partial.update.schema", _INTERNAL),
    Rule("hoodie.table.create.schema", _INTERNAL),
)

ENGINE_RULES = (
    Rule(
        "fs.*",
        NoCounterpart("set the access to the store in table.storage, or in the environment"),
    ),
    Rule("spark.*", NoCounterpart("set it in spark.conf")),
    Rule("--run-bootstrap", _BOOTSTRAP, takes_value=False),
    Rule("--bootstrap-overwrite", _BOOTSTRAP_DETAIL, takes_value=False),
    Rule("--bootstrap-index-class", _BOOTSTRAP_DETAIL),
    Rule("hoodie.bootstrap.*", _BOOTSTRAP_DETAIL),
    Rule("hoodie.allow.empty.commit", NoEffect("a commit without rows records its offsets")),
    Rule(
        "hoodie.write.rolling.metadata.*",
        NoEffect("each commit of lakemark carries the checkpoints forward"),
    ),
    Rule(
        "hoodie.datasource.write.commitmeta.key.prefix",
        NoEffect("HoodieStreamer does not use it"),
    ),
    *(
        Rule(name, _EXECUTION)
        for name in (
            "hoodie.upsert.shuffle.parallelism",
            "hoodie.insert.shuffle.parallelism",
            "hoodie.delete.shuffle.parallelism",
            "hoodie.finalize.write.parallelism",
            "hoodie.rollback.*",
            "hoodie.markers.*",
            "hoodie.write.markers.type",
            "hoodie.embed.timeline.*",
            "hoodie.filesystem.*",
            "hoodie.file.listing.parallelism",
            "hoodie.file.group.reader.enabled",
            "hoodie.merge.data.validation.enabled",
            "hoodie.merge.use.record.positions",
            "hoodie.memory.*",
            "hoodie.common.*",
            "hoodie.consistency.check.*",
            "hoodie.optimistic.consistency.*",
            "_hoodie.optimistic.consistency.*",
            "hoodie.fs.atomic_creation.support",
            "hoodie.write.buffer.*",
            "hoodie.write.executor.*",
            "hoodie.write.status.storage.level",
            "hoodie.write.tagged.record.storage.level",
            "hoodie.writestatus.class",
            "hoodie.write.concat.handle.class",
            "hoodie.write.merge.handle.*",
            "hoodie.write.can.ignore.post.commit.failures",
            "hoodie.write.application.id",
            "hoodie.block.writes.on.speculative.execution",
            "hoodie.fail.job.on.duplicate.data.file.detection",
            "hoodie.fail.writes.on.inline.table.service.exception",
            "hoodie.release.resource.on.completion.enable",
            "hoodie.client.init.callback.classes",
            "hoodie.cdc.file.group.iterator.memory.spill.bytes",
            "_.hoodie.allow.multi.write.on.same.instant",
        )
    ),
    *(
        Rule(name, _QUERY)
        for name in (
            "as.of.instant",
            "hoodie.datasource.query.*",
            "hoodie.datasource.read.*",
            "hoodie.datasource.merge.type",
            "hoodie.datasource.streaming.startOffset",
            "hoodie.enable.data.skipping",
            "hoodie.file.index.*",
            "hoodie.read.*",
            "hoodie.spark.polaris.*",
        )
    ),
    *(
        Rule(name, _SQL)
        for name in ("hoodie.spark.sql.*", "hoodie.sql.*", "hoodie.datasource.overwrite.mode")
    ),
    Rule("hoodie.datasource.write.streaming.*", _STREAMING),
    *(
        Rule(name, _INTERNAL)
        for name in (
            "hoodie.archivelog.folder",
            "hoodie.static.overwrite.partition.paths",
            "hoodie.datasource.write.partitions.to.delete",
            "hoodie.table.checksum",
            "hoodie.table.index.defs.path",
            "hoodie.table.log.file.format",
            "hoodie.table.metadata.partitions*",
            "hoodie.table.secondary.indexes.metadata",
        )
    ),
)
