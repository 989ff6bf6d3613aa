"""Apache Hudi's reader in Java, for tables that its reader in Spark cannot read.

These are tables with HFile data blocks: the reader in Spark mistakes their Avro records for rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def read_snapshot(spark: SparkSession, table: Path) -> DataFrame:
    """Read the newest snapshot, meta columns included, merged as Avro records."""
    jvm: Any = spark._jvm
    jsc: Any = spark.sparkContext._jsc
    hudi = jvm.org.apache.hudi
    conf = hudi.hadoop.fs.HadoopFSUtils.getStorageConfWithCopy(jsc.hadoopConfiguration())
    client = (
        hudi.common.table.HoodieTableMetaClient.builder().setConf(conf).setBasePath(str(table))
    ).build()
    completed = client.getActiveTimeline().getWriteTimeline().filterCompletedInstants()
    view = hudi.common.table.view.HoodieTableFileSystemView.fileListingBasedFileSystemView(
        hudi.client.common.HoodieSparkEngineContext(jsc), client, completed
    )
    schema = hudi.common.table.TableSchemaResolver(client).getTableSchema(True)
    last = completed.lastInstant().get().requestedTime()
    records = jvm.java.util.ArrayList()
    for partition in _partitions(table):
        for file_slice in view.getLatestMergedFileSlicesBeforeOrOn(partition, last).iterator():
            _read_slice(hudi, conf, client, schema, last, file_slice, records)
    rows = hudi.AvroConversionUtils.createDataFrame(
        jsc.parallelize(records, 1).rdd(), schema.toString(), spark._jsparkSession
    )
    return DataFrame(rows, spark)


def _read_slice(
    hudi: Any, conf: Any, client: Any, schema: Any, last: str, file_slice: Any, records: Any
) -> None:
    nothing = hudi.common.util.Option.empty()
    context = hudi.avro.HoodieAvroReaderContext(conf, client.getTableConfig(), nothing, nothing)
    reader = (
        hudi.common.table.read.HoodieFileGroupReader.newBuilder()
        .withReaderContext(context)
        .withHoodieTableMetaClient(client)
        .withLatestCommitTime(last)
        .withFileSlice(file_slice)
        .withDataSchema(schema)
        .withRequestedSchema(schema)
        .withInternalSchema(nothing)
        .withProps(hudi.common.config.TypedProperties())
        .withShouldUseRecordPosition(False)
        .build()
    )
    found = reader.getClosableIterator()
    while found.hasNext():
        records.add(found.next())
    found.close()


def _partitions(table: Path) -> list[str]:
    marked = table.rglob(".hoodie_partition_metadata")
    return sorted(str(path.parent.relative_to(table)) for path in marked)
