"""The keys of all ``hoodie.*`` properties and commit metadata that lakemark reads or writes.

Other modules use these constants instead of the literal keys.
"""

from __future__ import annotations

TABLE_NAME = "hoodie.table.name"
DATABASE_NAME = "hoodie.database.name"
TABLE_TYPE = "hoodie.table.type"
TABLE_VERSION = "hoodie.table.version"
INITIAL_VERSION = "hoodie.table.initial.version"
TABLE_CHECKSUM = "hoodie.table.checksum"
TABLE_FORMAT = "hoodie.table.format"
TIMELINE_LAYOUT_VERSION = "hoodie.timeline.layout.version"
TIMELINE_PATH = "hoodie.timeline.path"
TIMELINE_HISTORY_PATH = "hoodie.timeline.history.path"
TIMELINE_TIMEZONE = "hoodie.table.timeline.timezone"
ARCHIVELOG_FOLDER = "hoodie.archivelog.folder"
RECORD_KEY_FIELDS = "hoodie.table.recordkey.fields"
PARTITION_FIELDS = "hoodie.table.partition.fields"
ORDERING_FIELDS = "hoodie.table.ordering.fields"
PRECOMBINE_FIELD = "hoodie.table.precombine.field"
MERGE_MODE = "hoodie.record.merge.mode"
BOOTSTRAP_BASE_PATH = "hoodie.bootstrap.base.path"
KEY_GENERATOR_CLASS = "hoodie.table.keygenerator.class"
KEY_GENERATOR_TYPE = "hoodie.table.keygenerator.type"
POPULATE_META_FIELDS = "hoodie.populate.meta.fields"
BASE_FILE_FORMAT = "hoodie.table.base.file.format"
HIVE_STYLE_PARTITIONING = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE_PARTITIONING = "hoodie.datasource.write.partitionpath.urlencode"
DROP_PARTITION_COLUMNS = "hoodie.datasource.write.drop.partition.columns"
CDC_ENABLED = "hoodie.table.cdc.enabled"
CDC_LOGGING_MODE = "hoodie.table.cdc.supplemental.logging.mode"
PARTITION_METAFILE_USE_BASE_FORMAT = "hoodie.partition.metafile.use.base.format"
MULTIPLE_BASE_FILE_FORMATS = "hoodie.table.multiple.base.file.formats.enable"
METADATA_PARTITIONS = "hoodie.table.metadata.partitions"
METADATA_PARTITIONS_INFLIGHT = "hoodie.table.metadata.partitions.inflight"
INDEX_DEFINITIONS_PATH = "hoodie.table.index.defs.path"
PARTIAL_UPDATE_MODE = "hoodie.table.partial.update.mode"
PAYLOAD_CLASS = "hoodie.compaction.payload.class"
#: The payload class with which the table was created, and whose rules other properties now store.
LEGACY_PAYLOAD_CLASS = "hoodie.table.legacy.payload.class"
MERGE_STRATEGY_ID = "hoodie.record.merge.strategy.id"
#: The key of the merge strategy id in Hudi before 1.0.
OLD_MERGE_STRATEGY_ID = "hoodie.compaction.record.merger.strategy"
DELETE_FIELD = "hoodie.record.merge.property.hoodie.payload.delete.field"
DELETE_MARKER = "hoodie.record.merge.property.hoodie.payload.delete.marker"
UNAVAILABLE_VALUE = "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value"
CREATE_SCHEMA = "hoodie.table.create.schema"
LOG_FILE_FORMAT = "hoodie.table.log.file.format"
#: The keys of the formats of base files and log files in Hudi before 0.6.
OLD_BASE_FILE_FORMAT = "hoodie.table.ro.file.format"
OLD_LOG_FILE_FORMAT = "hoodie.table.rt.file.format"
BOOTSTRAP_INDEX_ENABLE = "hoodie.bootstrap.index.enable"
BOOTSTRAP_INDEX_CLASS = "hoodie.bootstrap.index.class"
BOOTSTRAP_INDEX_TYPE = "hoodie.bootstrap.index.type"
PARTITION_EXTRACTOR_CLASS = "hoodie.table.partition_extractor_class"
SLASH_SEPARATED_DATES = "hoodie.datasource.write.slash.separated.date.partitioning"
#: The indexes of a metadata table that was dropped, which are built again with it.
DROPPED_INDEXES = "lakemark.metadata.dropped.indexes"
#: The columns with statistics. Apache Hudi knows it as an option of its writers.
STATISTICS_COLUMNS = "hoodie.metadata.index.column.stats.column.list"
SECONDARY_INDEXES_METADATA = "hoodie.table.secondary.indexes.metadata"
#: Options of the TIMESTAMP and CUSTOM key generators: how a time is formatted as a partition path.
TIMESTAMP_TYPE = "hoodie.keygen.timebased.timestamp.type"
TIMESTAMP_SCALAR_UNIT = "hoodie.keygen.timebased.timestamp.scalar.time.unit"
TIMESTAMP_INPUT_FORMAT = "hoodie.keygen.timebased.input.dateformat"
TIMESTAMP_INPUT_DELIMITER = "hoodie.keygen.timebased.input.dateformat.list.delimiter.regex"
TIMESTAMP_INPUT_ZONE = "hoodie.keygen.timebased.input.timezone"
TIMESTAMP_OUTPUT_FORMAT = "hoodie.keygen.timebased.output.dateformat"
TIMESTAMP_OUTPUT_ZONE = "hoodie.keygen.timebased.output.timezone"
TIMESTAMP_ZONE = "hoodie.keygen.timebased.timezone"
TIMESTAMP_PARSER = "hoodie.keygen.datetime.parser.class"
#: The names of these options in Hudi before 0.14.
OLD_TIMESTAMP_OPTIONS = "hoodie.deltastreamer.keygen.*"
#: Properties that are passed to a merger.
MERGE_PROPERTIES = "hoodie.record.merge.property.*"

#: The partition columns that are expressions of other columns, as JSON. It is a property of
#: lakemark, which Apache Hudi keeps and does not read. A commit with the same text in its metadata
#: says that all rows of the table have the values of these expressions.
PARTITION_EXPRESSIONS = "lakemark.partition.expressions"

#: Keys inside a commit's extra metadata.
SCHEMA = "schema"
BUCKET_COUNT = "lakemark.bucket.count"
BUCKET_HASH_FIELDS = "lakemark.bucket.hash.fields"
#: The index of a writer without a fixed bucket count: ``LOOKUP``, ``GLOBAL_LOOKUP`` (keys are
#: unique in the whole table) or ``CONSISTENT_HASHING``.
INDEX = "lakemark.index"
LOOKUP = "lookup"
GLOBAL_LOOKUP = "global_lookup"
CONSISTENT_HASHING = "consistent_hashing"
#: A bucket index whose partitions have different bucket counts.
PARTITION_BUCKETS = "partition_buckets"
#: With ``CONSISTENT_HASHING``, the number of buckets of a new partition.
FIRST_BUCKETS = "lakemark.index.first_buckets"
#: The keys that are also properties of a table that lakemark created, because a process may die
#: between the creation and the first commit.
INDEX_OF_CREATION = (BUCKET_COUNT, INDEX, FIRST_BUCKETS)
SOURCE_START = "lakemark.source.start"
#: Offsets before the batch that were skipped without being read, as JSON.
SOURCE_LOST = "lakemark.source.lost"
#: Numbers of records of the batch that were written and rejected, as JSON.
AUDIT = "lakemark.audit"
#: The number of dead letters whose rows the commit contains; absent if it is no replay.
REPLAYED = "lakemark.replayed"
#: A hash of the configuration of the pipeline's transforms; absent if there are none.
TRANSFORM = "lakemark.transform"
#: The rules and checks of the pipeline, and how many rows of the batch violated each, as JSON;
#: absent if the pipeline has neither.
EXPECTATIONS = "lakemark.expectations"
#: The source positions up to which each streamer of the table has read, as JSON.
CHECKPOINTS = "lakemark.checkpoints"
#: The last commit that each hook of the pipeline had announced, as JSON; absent without hooks.
HOOKS = "lakemark.hooks"
WRITER_ID = "lakemark.writer.id"
#: A parameter of the strategy in the plan of a clustering, with the value ``true``: the process
#: that made the plan also executes it. So if the process has died, lakemark executes the plan.
EXECUTED_AT_ONCE = "lakemark.clustering.executed.at.once"
