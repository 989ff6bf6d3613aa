"""Rules: table services, the metadata table, concurrency, bad records and the run.

Source: ``HoodieStreamer.Config``, ``HoodieCompactionConfig``, ``HoodieCleanConfig``,
``HoodieArchivalConfig``, ``HoodieClusteringConfig``, ``HoodieTTLConfig``, ``HoodieMetadataConfig``,
``HoodieLockConfig`` and ``HoodieErrorTableConfig`` of Apache Hudi 1.2.0.
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

_CLUSTER = Combined(
    "`clustering.enabled`, with `clustering.mode: inline`, or `background` if the job clusters "
    "only asynchronously; with a bucket index no counterpart, or nothing with consistent hashing, "
    "because `bucket_resizing` splits and merges the buckets"
)
_CLUSTERED_PARTITIONS = Combined("`clustering.partitions`")
_CLUSTERING = Combined("nothing; it sets how Apache Hudi plans or executes a clustering")
_PLAN = NoEffect("it sets how Apache Hudi compacts a file group")
_THRESHOLD = NoCounterpart("a compaction also merges few and small logs", unless=("0",))
_INDEX_OF_TABLE = NoCounterpart(
    "lakemark maintains the indexes that the table has; create others with lakemark table index"
)
_METADATA = NoEffect("lakemark maintains the metadata table in each commit, and sizes it by itself")
_OTHER_LOCK = NoEffect("it belongs to a lock provider without counterpart")
_LOCK_WAIT = NoEffect("lakemark waits for the lock with its own timeouts")
_CONFLICT = NoEffect("lakemark checks conflicts before it publishes, and writes the batch again")
_ERROR_TABLE = NoEffect("it belongs to the error table")
_POOLS = NoEffect("it divides Spark among jobs; asynchronous compaction has its own pool")


def _seconds(text: str) -> float:
    return whole_number(text) / 1_000


SERVICE_RULES = (
    Rule("--disable-compaction", Combined("`compaction.enabled: false`"), takes_value=False),
    Rule(
        "hoodie.compact.inline.max.delta.commits",
        Combined("`compaction.after_commits`, if the trigger strategy counts commits"),
    ),
    Rule(
        "hoodie.compact.inline",
        NoEffect("HoodieStreamer itself decides how it compacts"),
    ),
    Rule("hoodie.compact.schedule.inline", NoEffect("a pipeline plans and executes compactions")),
    Rule(
        "hoodie.datasource.compaction.async.enable",
        NoEffect("HoodieStreamer itself decides how it compacts"),
    ),
    Rule(
        "hoodie.compact.inline.trigger.strategy",
        Combined(
            "`compaction.after_commits` and `compaction.after`; `compaction.when: all` for "
            "`NUM_AND_TIME`"
        ),
    ),
    Rule(
        "hoodie.compact.inline.max.delta.seconds",
        Combined("`compaction.after`, if the trigger strategy measures time"),
    ),
    Rule(
        "hoodie.compaction.strategy",
        Combined(
            "`compaction.order`, `partitions`, `max_partitions` and `max_io_bytes`; "
            "`LogFileNumBasedCompactionStrategy`, `BoundedPartitionAwareCompactionStrategy` and "
            "`UnBoundedPartitionAwareCompactionStrategy` have no counterpart"
        ),
    ),
    Rule(
        "hoodie.compaction.target.io",
        Combined("`compaction.max_io_bytes`, if the strategy is bounded"),
    ),
    Rule(
        "hoodie.compaction.daybased.target.partitions",
        Combined("`compaction.max_partitions`, for `DayBasedCompactionStrategy`"),
    ),
    Rule(
        "hoodie.compaction.partition.path.regex",
        Combined("`compaction.partitions`, for `PartitionRegexBasedCompactionStrategy`"),
    ),
    Rule("hoodie.compaction.logfile.num.threshold", _THRESHOLD),
    Rule("hoodie.compaction.logfile.size.threshold", _THRESHOLD),
    Rule("hoodie.compaction.*", _PLAN),
    Rule("hoodie.compact.merge.handle.class", _PLAN),
    Rule("hoodie.log.compaction.inline", Combined("`compaction.logs`")),
    Rule(
        "hoodie.log.compaction.blocks.threshold",
        Combined("`compaction.logs`, if the job compacts logs"),
    ),
    Rule("hoodie.log.compaction.*", NoEffect("it belongs to log compaction")),
    Rule(
        "--max-pending-compactions",
        NoEffect("compaction.backlog_commits limits the commits that are not compacted"),
    ),
    Rule(
        "--max-pending-clustering",
        NoEffect("a pipeline executes each clustering that it requests before its next batch"),
    ),
    Rule(
        "--retry-last-pending-inline-compaction",
        NoEffect("a pipeline always executes pending compactions first"),
        takes_value=False,
    ),
    Rule(
        "--retry-last-pending-inline-clustering",
        NoEffect(
            "a pipeline executes clusterings that were planned, but not begun "
            "(clustering.pending), and plans that of a killed run again"
        ),
        aliases=("-rc",),
        takes_value=False,
    ),
    Rule("hoodie.clean.automatic", Combined("`cleaning.enabled`")),
    Rule(
        "hoodie.clean.policy",
        Direct(
            "cleaning.policy",
            one_of(
                {
                    word: word
                    for word in (
                        "keep_latest_commits",
                        "keep_latest_by_hours",
                        "keep_latest_file_versions",
                    )
                },
                "choose one of the policies of cleaning.policy",
            ),
        ),
    ),
    Rule("hoodie.clean.commits.retained", Direct("cleaning.commits_retained", whole_number)),
    Rule("hoodie.clean.hours.retained", Direct("cleaning.hours_retained", whole_number)),
    Rule(
        "hoodie.clean.fileversions.retained",
        Direct("cleaning.file_versions_retained", whole_number),
    ),
    Rule("hoodie.clean.trigger.max.commits", Direct("cleaning.every_commits", whole_number)),
    Rule(
        "hoodie.clean.failed.writes.policy",
        NoEffect("concurrency.mode decides when failed commits are rolled back"),
    ),
    Rule(
        "hoodie.clean.partition.filter.*",
        NoCounterpart("a clean considers all partitions", unless=("",)),
    ),
    Rule("hoodie.clean.*", NoEffect("it sets how Apache Hudi executes a clean")),
    Rule("hoodie.prewrite.cleaner.policy", NoEffect("it sets when Apache Hudi cleans")),
    Rule("hoodie.write.empty.clean.interval.hours", NoEffect("it sets when Apache Hudi cleans")),
    Rule("hoodie.archive.automatic", Combined("`archival.enabled`")),
    Rule("hoodie.keep.min.commits", Combined("`archival.min_commits`")),
    Rule("hoodie.keep.max.commits", Combined("`archival.max_commits`")),
    Rule(
        "hoodie.archive.beyond.savepoint",
        NoCounterpart("archival stops at a savepoint; delete old savepoints", unless=("false", "")),
    ),
    Rule("hoodie.archive.*", NoEffect("it sets how Apache Hudi archives")),
    Rule("hoodie.commits.archival.batch", NoEffect("it sets how Apache Hudi archives")),
    Rule("hoodie.timeline.compaction.batch.size", Direct("archival.files_to_merge", whole_number)),
    Rule("hoodie.timeline.*", NoEffect("it sets how Apache Hudi archives")),
    Rule("hoodie.fail.on.timeline.archiving", NoEffect("a failed archival is retried")),
    Rule("hoodie.clustering.inline", _CLUSTER),
    Rule("hoodie.clustering.async.enabled", _CLUSTER),
    Rule(
        "hoodie.clustering.schedule.inline",
        Combined(
            "nothing if `hoodie.clustering.inline` or `hoodie.clustering.async.enabled` is also "
            "`true`, otherwise no counterpart: a pipeline executes the clusterings that it plans"
        ),
    ),
    *(
        Rule(f"hoodie.clustering.{name}.max.commits", Combined("`clustering.after_commits`"))
        for name in ("inline", "async")
    ),
    *(
        Rule(f"hoodie.clustering.plan.strategy.{name}", Combined(f"`clustering.{setting}`"))
        for name, setting in (
            ("small.file.limit", "small_file_bytes"),
            ("target.file.max.bytes", "target_file_bytes"),
            ("max.bytes.per.group", "max_group_bytes"),
            ("max.num.groups", "max_groups"),
            ("sort.columns", "sort_by"),
        )
    ),
    Rule("hoodie.layout.optimize.strategy", Combined("`clustering.curve`")),
    Rule("hoodie.clustering.plan.strategy.partition.regex.pattern", _CLUSTERED_PARTITIONS),
    Rule("hoodie.clustering.plan.strategy.partition.selected", _CLUSTERED_PARTITIONS),
    Rule(
        "hoodie.clustering.plan.partition.filter.mode",
        Combined("nothing for `NONE`; other modes have no counterpart"),
    ),
    *(
        Rule(f"hoodie.clustering.{name}.class", Combined("nothing for the strategies by size"))
        for name in ("plan.strategy", "execution.strategy")
    ),
    Rule(
        "hoodie.clustering.rollback.pending.replacecommit.on.conflict",
        Combined("`true`: `clustering.pending: remove`"),
    ),
    Rule("hoodie.clustering.*", _CLUSTERING),
    Rule("hoodie.layout.optimize.*", _CLUSTERING),
    Rule(
        "hoodie.table.services.enabled",
        Combined(
            "`false`: `compaction`, `cleaning` and `archival` are disabled, and partitions do not "
            "expire"
        ),
    ),
    Rule("hoodie.table.services.incremental.enabled", NoEffect("it sets how Apache Hudi plans")),
    Rule(
        "hoodie.table.service.manager.enabled",
        NoCounterpart("a pipeline runs its table services by itself", unless=("false", "")),
    ),
    Rule("hoodie.table.service.manager.*", NoEffect("it belongs to the table service manager")),
    Rule("hoodie.partition.ttl.inline", Combined("`partition_lifetime`")),
    Rule(
        "hoodie.partition.ttl.strategy.days.retain",
        Combined("`partition_lifetime.days`; without it, and with 0 or less, nothing expires"),
    ),
    Rule(
        "hoodie.partition.ttl.management.strategy.type",
        Combined("`partition_lifetime.by`: `KEEP_BY_CREATION_TIME` becomes `creation`"),
    ),
    Rule("hoodie.partition.ttl.strategy.*", Combined("nothing, if partitions do not expire")),
)

METADATA_RULES = (
    Rule("hoodie.metadata.enable", Direct("table.metadata_table", yes_or_no)),
    Rule("hoodie.metadata.index.async", NoEffect("lakemark builds indexes in their own commit")),
    Rule(
        "hoodie.metadata.global.record.level.index.enable",
        NoCounterpart(_INDEX_OF_TABLE.remedy, unless=("false", "")),
    ),
    Rule(
        "hoodie.metadata.record.level.index.enable",
        NoCounterpart(_INDEX_OF_TABLE.remedy, unless=("false", "")),
    ),
    *(
        Rule(name, NoCounterpart(_INDEX_OF_TABLE.remedy, unless=("false", "true", "")))
        for name in (
            "hoodie.metadata.index.secondary.enable",
            "hoodie.metadata.index.column.stats.enable",
        )
    ),
    *(
        Rule(name, NoCounterpart(_INDEX_OF_TABLE.remedy, unless=("false", "")))
        for name in (
            "hoodie.metadata.index.bloom.filter.enable",
            "hoodie.metadata.bloom.filter.enable",
            "hoodie.metadata.index.expression.enable",
        )
    ),
    Rule(
        "hoodie.metadata.index.column.stats.column.list",
        NoCounterpart(
            "set table.statistics_columns for a new table; for an existing one, run lakemark table "
            "index statistics",
            unless=("",),
        ),
    ),
    Rule("hoodie.metadata.index.drop", NoCounterpart("run lakemark table index drop")),
    Rule("hoodie.metadata.*", _METADATA),
    Rule("_hoodie.metadata.*", _METADATA),
)

CONCURRENCY_RULES = (
    Rule(
        "hoodie.write.concurrency.mode",
        Combined(
            "`concurrency.mode`: `multi_writer` for `OPTIMISTIC_CONCURRENCY_CONTROL`, "
            "`non_blocking` for `NON_BLOCKING_CONCURRENCY_CONTROL`"
        ),
    ),
    Rule(
        "hoodie.write.concurrency.early.conflict.detection.enable",
        Combined("`concurrency.early_conflict_detection`"),
    ),
    Rule(
        "hoodie.write.lock.provider",
        Combined(
            "`concurrency.lock.provider`: `storage`, `file_system`, `in_process`, `zookeeper` or "
            "`dynamodb`; locks in a Hive metastore have no counterpart"
        ),
    ),
    Rule(
        "hoodie.write.lock.filesystem.expire",
        Direct("concurrency.lock.expire_minutes", whole_number),
    ),
    Rule(
        "hoodie.write.lock.filesystem.path",
        NoCounterpart(
            "lakemark keeps the lock in the folder of the table, so all writers must", True
        ),
    ),
    Rule(
        "hoodie.client.heartbeat.interval_in_ms",
        Direct("concurrency.heartbeat_interval_s", _seconds),
    ),
    Rule(
        "hoodie.client.heartbeat.tolerable.misses",
        Direct("concurrency.tolerable_misses", whole_number),
    ),
    Rule(
        "hoodie.time.generator.max_expected_clock_skew_ms",
        Direct("concurrency.clock_skew_ms", whole_number),
    ),
    Rule("hoodie.time.generator.*", NoEffect("lakemark generates times by itself")),
    Rule("_hoodie.time.generator.*", NoEffect("lakemark generates times by itself")),
    *(
        Rule(f"hoodie.write.lock.{name}", Combined(f"`concurrency.lock.options.{option}`"))
        for name, option in (
            ("zookeeper.url", "hosts"),
            ("zookeeper.base_path", "base_path"),
            ("zookeeper.lock_key", "lock_key"),
            ("zookeeper.session_timeout_ms", "session_timeout_s"),
            ("dynamodb.table", "table"),
            ("dynamodb.partition_key", "partition_key"),
            ("dynamodb.region", "region"),
            ("dynamodb.endpoint_url", "endpoint_url"),
        )
    ),
    Rule(
        "hoodie.write.lock.zookeeper.port",
        NoEffect("Apache Hudi does not read it; the port belongs in the url, else it is 2181"),
    ),
    Rule("hoodie.write.lock.zookeeper.*", NoEffect("lakemark connects with its own timeouts")),
    Rule("hoodie.write.lock.dynamodb.*", NoEffect("a table that lakemark creates is on demand")),
    Rule("hoodie.write.lock.hivemetastore.*", _OTHER_LOCK),
    *(
        Rule(name, _LOCK_WAIT)
        for name in ("hoodie.write.lock.*", "hoodie.auto.adjust.lock.configs")
    ),
    *(
        Rule(name, _CONFLICT)
        for name in (
            "hoodie.write.concurrency.*",
            "hoodie.write.num.retries.on.conflict.failures",
        )
    ),
)

BAD_RECORD_RULES = (
    Rule(
        "--commit-on-errors",
        Combined("`dead_letters.max_share: 1.0`: the records are kept in the dead-letter table"),
        takes_value=False,
    ),
    Rule("hoodie.errortable.enable", Combined("`dead_letters`")),
    Rule("hoodie.errortable.base.path", _ERROR_TABLE),
    Rule("hoodie.errortable.*", _ERROR_TABLE),
    Rule("hoodie.write.ignore.failed", NoEffect("a record is written or goes to the dead letters")),
    Rule(
        "hoodie.streamer.row.throw.explicit.exceptions",
        NoEffect("the dead letters contain the reason of each record"),
    ),
    Rule(
        "hoodie.precommit.validators",
        NoCounterpart(
            "lakemark counts the offsets of each batch itself; replace other checks by steps of "
            "transform, which reject records",
            changes_rows=True,
            unless=("", "org.apache.hudi.utilities.streamer.validator.sparkkafkaoffsetvalidator"),
        ),
    ),
    Rule("hoodie.precommit.validators.*", NoEffect("it belongs to the validators")),
    Rule(
        "hoodie.prewrite.validators",
        NoCounterpart(
            "replace the checks by steps of transform, which reject records",
            changes_rows=True,
            unless=("",),
        ),
    ),
)

RUN_RULES = (
    Rule(
        "--continuous",
        Combined(
            "`run.mode: continuous`, and `compaction.mode: async` for a merge-on-read table; "
            "without it, `run.mode: once`"
        ),
        takes_value=False,
    ),
    Rule("--min-sync-interval-seconds", Combined("`run.trigger_interval_s`")),
    Rule(
        "--post-write-termination-strategy-class",
        Combined("`run.mode: once` for `NoNewDataTerminationStrategy`"),
    ),
    Rule(
        "max.rounds.without.new.data.to.shutdown",
        NoEffect("a run with run.mode: once stops at the end of the topic"),
    ),
    Rule("--spark-master", Combined("`spark.master`")),
    Rule("--spark-app-name", Combined("`name`")),
    Rule("--enable-hive-support", NoEffect("lakemark needs no Hive"), takes_value=False),
    Rule("--delta-sync-scheduling-weight", _POOLS),
    Rule("--delta-sync-scheduling-minshare", _POOLS),
    Rule("--compact-scheduling-weight", _POOLS),
    Rule("--compact-scheduling-minshare", _POOLS),
    Rule("--cluster-scheduling-weight", _POOLS),
    Rule("--cluster-scheduling-minshare", _POOLS),
    Rule(
        "--config-hot-update-strategy-class",
        NoCounterpart("start the pipeline again after a change of its file", unless=("",)),
    ),
    Rule("--props", NoEffect("the named property file is read instead")),
    Rule(
        "--hoodie-conf", Combined("the property that it contains; it replaces the one in the file")
    ),
    Rule("--help", NoEffect("it prints the options"), aliases=("-h",), takes_value=False),
)
