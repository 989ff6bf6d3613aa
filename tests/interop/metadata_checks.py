"""Compares what Apache Hudi reads from a metadata table with what it reads from the data files.

These are the checks of ``HoodieMetadataTableValidator`` of Apache Hudi 1.2.0, whose class is not in
the bundle for Spark. If ``LAKEMARK_HUDI_UTILITIES`` names a jar with the class, the class itself
runs, too. Its check of secondary indexes is omitted: it fails by an exception at any table ("stream
has already been operated upon or closed"), and counts that as a success.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from py4j.java_gateway import set_field
from pyspark.sql import DataFrame, SparkSession

#: Hudi's own columns that have statistics.
_COLUMNS = ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key")
#: The types of records in the metadata table.
_OF_PARTITION, _OF_RECORD_INDEX, _OF_SECONDARY_INDEX = 6, 5, 7

#: The checks of the validator that a table without secondary index passes.
_CHECKS = (
    "validateLatestFileSlices",
    "validateLatestBaseFiles",
    "validateAllFileGroups",
    "validateAllColumnStats",
    "validatePartitionStats",
    "validateBloomFilters",
    "validateRecordIndexContent",
)


def utilities_jars() -> list[Path]:
    """Return the jars of Apache Hudi's utilities, which the environment may name."""
    return [Path(one) for one in os.environ.get("LAKEMARK_HUDI_UTILITIES", "").split(":") if one]


def find_differences(spark: SparkSession, path: str) -> list[str]:
    """Return how the metadata table of a table differs from its files, a text for each difference.

    Indexes that the metadata table does not have are not checked.
    """
    table = _Table.open(spark, path)
    found = [*_of_files(table)]
    checks = {
        "column_stats": _of_statistics,
        "partition_stats": _of_partition_statistics,
        "bloom_filters": _of_bloom_filters,
        "record_index": _of_record_index,
    }
    present = {*table.client.getTableConfig().getMetadataPartitions()}
    for name, check in checks.items():
        if name in present:
            found += check(table)
    for name in sorted(one for one in present if one.startswith("secondary_index_")):
        found += _of_secondary_index(table, name)
    return found + (_validate(table) if utilities_jars() else [])


@dataclass(frozen=True)
class _Table:
    """A table, and readers of its metadata table and of its files."""

    spark: SparkSession
    path: str
    hudi: Any
    engine: Any
    client: Any
    reader: Any

    @classmethod
    def open(cls, spark: SparkSession, path: str) -> _Table:
        jvm: Any = spark._jvm
        hudi, jsc = jvm.org.apache.hudi, spark.sparkContext._jsc
        conf = hudi.hadoop.fs.HadoopFSUtils.getStorageConfWithCopy(jsc.hadoopConfiguration())
        client = (
            hudi.common.table.HoodieTableMetaClient.builder()
            .setConf(conf)
            .setBasePath(f"file:{path}")
            .build()
        )
        engine = hudi.client.common.HoodieSparkEngineContext(jsc)
        create = client.getTableFormat().getMetadataFactory().create
        config = _metadata_config(hudi, is_used=True)
        reader = create(engine, client.getStorage(), config, client.getBasePath().toString())
        return cls(spark, path, hudi, engine, client, reader)

    def partitions(self, *, by_metadata: bool) -> list[str]:
        paths = self.hudi.common.fs.FSUtils.getAllPartitionPaths
        return sorted(paths(self.engine, self.client, by_metadata))

    def slices(self, *, by_metadata: bool, newest: bool = False) -> list[Any]:
        """Return the file slices of all partitions."""
        config = _metadata_config(self.hudi, is_used=by_metadata)
        create = self.hudi.common.table.view.FileSystemViewManager.createInMemoryFileSystemView
        view, found = create(self.engine, self.client, config), []
        for partition in self.partitions(by_metadata=by_metadata):
            if newest:
                found += _items(view.getLatestFileSlices(partition))
            else:
                for group in _items(view.getAllFileGroups(partition)):
                    found += _items(group.getAllFileSlices())
        view.close()
        return found

    def newest_files(self) -> list[tuple[str, str]]:
        """Return the partition path and name of each file of the newest slices."""
        found = []
        for one in self.slices(by_metadata=False, newest=True):
            found += [(one.getPartitionPath(), name) for name, _ in _base_of(one) + _logs_of(one)]
        return found

    def path_of(self, partition: str, name: str) -> Any:
        return self.hudi.storage.StoragePath("/".join(filter(None, [self.path, partition, name])))

    def metadata_rows(self, kind: int) -> DataFrame:
        rows = self.spark.read.format("hudi").load(f"{self.path}/.hoodie/metadata")
        return rows.filter(f"type = {kind}")

    def rows(self) -> DataFrame:
        reader = self.spark.read.format("hudi").option("hoodie.metadata.enable", "false")
        return reader.load(self.path)


def _metadata_config(hudi: Any, *, is_used: bool) -> Any:
    builder = hudi.common.config.HoodieMetadataConfig.newBuilder().enable(is_used)
    return builder.withMetadataIndexBloomFilter(is_used).build()


def _items(stream: Any) -> list[Any]:
    """Return the items of a Java stream."""
    items, iterator = [], stream.iterator()
    while iterator.hasNext():
        items.append(iterator.next())
    return items


def _base_of(one: Any) -> list[tuple[str, int]]:
    base = one.getBaseFile()
    return [(base.get().getFileName(), base.get().getFileSize())] if base.isPresent() else []


def _logs_of(one: Any) -> list[tuple[str, int]]:
    logs = _items(one.getLogFiles())
    return sorted((log.getFileName(), log.getFileSize()) for log in logs)


def _described(slices: Iterable[Any]) -> list[tuple[object, ...]]:
    return sorted(
        (
            one.getPartitionPath(),
            one.getFileId(),
            one.getBaseInstantTime(),
            *(_base_of(one) + _logs_of(one)),
        )
        for one in slices
    )


def _compared(what: str, stored: Iterable[Any], actual: Iterable[Any]) -> Iterator[str]:
    stored, actual = [*stored], [*actual]
    if not actual:
        yield f"{what}: nothing is compared"
    if sorted(map(str, stored)) != sorted(map(str, actual)):
        only_stored = [one for one in stored if one not in actual]
        yield f"{what}: only in the metadata table {only_stored}, of {actual}"


def _of_files(table: _Table) -> Iterator[str]:
    partitions = (table.partitions(by_metadata=one) for one in (True, False))
    yield from _compared("partitions", *partitions)
    slices = (_described(table.slices(by_metadata=one)) for one in (True, False))
    yield from _compared("file slices", *slices)
    newest = (_described(table.slices(by_metadata=one, newest=True)) for one in (True, False))
    yield from _compared("newest file slices", *newest)


def _of_statistics(table: _Table) -> Iterator[str]:
    files = table.newest_files()
    actual = [str(one) for file in files for one in _statistics_of_file(table, *file)]
    stored = [str(one) for one in _stored_statistics(table, files)]
    yield from _compared("column_stats", stored, actual)


def _statistics_of_file(table: _Table, partition: str, name: str) -> list[Any]:
    """Return the statistics of a file's columns, as Apache Hudi derives them from the file."""
    hudi, path = table.hudi, table.path_of(partition, name)
    storage, version = table.client.getStorage(), _index_version(table)
    if name.endswith(".parquet"):
        formats = hudi.io.storage.HoodieIOFactory.getIOFactory(storage)
        utils = formats.getFileFormatUtils(hudi.common.model.HoodieFileFormat.PARQUET)
        return [*utils.readColumnStatsFromMetadata(storage, path, [*_COLUMNS], version)]
    schema = hudi.common.table.TableSchemaResolver(table.client).getTableSchema()
    derive = hudi.metadata.HoodieTableMetadataUtil.getLogFileColumnRangeMetadata
    some = hudi.common.util.Option.of(schema)
    found = derive(path.toString(), partition, table.client, [*_COLUMNS], some, 1 << 20)
    return [_named(table, name, one) for one in found]


def _named(table: _Table, name: str, one: Any) -> Any:
    """Return the same statistics with the name of the file instead of its path."""
    create = table.hudi.stats.HoodieColumnRangeMetadata.create
    return create(
        name,
        one.getColumnName(),
        one.getMinValue(),
        one.getMaxValue(),
        one.getNullCount(),
        one.getValueCount(),
        one.getTotalSize(),
        one.getTotalUncompressedSize(),
        one.getValueMetadata(),
    )


def _stored_statistics(table: _Table, files: Sequence[tuple[str, str]]) -> list[Any]:
    pair = table.hudi.common.util.collection.Pair.of
    pairs = [pair(*file) for file in files]
    read = table.hudi.stats.HoodieColumnRangeMetadata.fromColumnStats
    return [
        read(stored)
        for column in _COLUMNS
        for stored in table.reader.getColumnStats(pairs, column).values()
    ]


def _index_version(table: _Table) -> Any:
    util = table.hudi.metadata.HoodieTableMetadataUtil
    return util.existingIndexVersionOrDefault("column_stats", table.client)


def _of_partition_statistics(table: _Table) -> Iterator[str]:
    """Compare the counts, sizes and bounds of partitions with those of their files together."""
    by_partition: dict[str, list[tuple[str, str]]] = {}
    for file in table.newest_files():
        by_partition.setdefault(file[0], []).append(file)
    actual = []
    for partition, files in by_partition.items():
        of_column: dict[str, list[Any]] = {}
        for one in _stored_statistics(table, files):
            renamed = _named(table, partition or ".", one)
            of_column.setdefault(one.getColumnName(), []).append(renamed)
        merge = table.hudi.stats.HoodieColumnRangeMetadata.merge
        actual += [_summary(reduce(merge, some)) for some in of_column.values()]
    rows = table.metadata_rows(_OF_PARTITION).select("ColumnStatsMetadata.*").collect()
    stored = [
        (
            row.fileName,
            row.columnName,
            *map(_unwrapped, (row.minValue, row.maxValue)),
            *(row.nullCount, row.valueCount, row.totalSize, row.totalUncompressedSize),
        )
        for row in rows
        if row.columnName in _COLUMNS and not row.isDeleted
    ]
    yield from _compared("partition_stats", stored, actual)


def _unwrapped(value: Any) -> object:
    """Return the value of a union of wrappers, which Spark reads as one field for each wrapper."""
    return next((wrapper[0] for wrapper in value if wrapper is not None), None)


def _summary(one: Any) -> tuple[object, ...]:
    return (
        one.getFilePath(),
        one.getColumnName(),
        one.getMinValue(),
        one.getMaxValue(),
        one.getNullCount(),
        one.getValueCount(),
        one.getTotalSize(),
        one.getTotalUncompressedSize(),
    )


def _of_bloom_filters(table: _Table) -> Iterator[str]:
    hudi, storage = table.hudi, table.client.getStorage()
    formats = hudi.io.storage.HoodieIOFactory.getIOFactory(storage)
    utils = formats.getFileFormatUtils(hudi.common.model.HoodieFileFormat.PARQUET)
    bases = [file for file in table.newest_files() if file[1].endswith(".parquet")]
    actual, stored = [], []
    for file in bases:
        of_footer = utils.readBloomFilterFromMetadata(storage, table.path_of(*file))
        actual.append((*file, of_footer.serializeToString()))
        found = table.reader.getBloomFilter(*file)
        if found.isPresent():
            stored.append((*file, found.get().serializeToString()))
    yield from _compared("bloom_filters", stored, actual)


def _of_record_index(table: _Table) -> Iterator[str]:
    names = ("_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name")
    file_id = table.hudi.common.fs.FSUtils.getFileId
    rows = table.rows().select(*names).collect()
    actual = [(key, partition, file_id(name)) for key, partition, name in rows]
    locate = table.hudi.metadata.HoodieTableMetadataUtil.getLocationFromRecordIndexInfo
    stored = []
    for key, info in (
        table.metadata_rows(_OF_RECORD_INDEX).select("key", "recordIndexMetadata").collect()
    ):
        place = locate(
            info.partitionName,
            info.fileIdEncoding,
            info.fileIdHighBits,
            info.fileIdLowBits,
            info.fileIndex,
            info.fileId,
            info.instantTime,
        )
        stored.append((key, place.getPartitionPath(), place.getFileId()))
    yield from _compared("record_index", stored, actual)


def _of_secondary_index(table: _Table, name: str) -> Iterator[str]:
    """Compare the keys of the only secondary index of a table, whose values are not null."""
    definition = table.client.getIndexMetadata().get().getIndexDefinitions().get(name)
    (column,) = definition.getSourceFields()
    make = table.hudi.metadata.SecondaryIndexKeyUtils.constructSecondaryIndexKey
    rows = table.rows().select(column, "_hoodie_record_key").collect()
    actual = [make(value, key) for value, key in rows]
    found = table.metadata_rows(_OF_SECONDARY_INDEX).select(
        "key", "SecondaryIndexMetadata.isDeleted"
    )
    stored = [key for key, is_deleted in found.collect() if not is_deleted]
    yield from _compared(name, stored, actual)


def _validate(table: _Table) -> list[str]:
    """Run ``HoodieMetadataTableValidator``, and return what it finds."""
    utilities = table.hudi.utilities
    config = utilities.HoodieMetadataTableValidator.Config()
    present = {*table.client.getTableConfig().getMetadataPartitions()}
    set_field(config, "basePath", f"file:{table.path}")
    set_field(config, "ignoreFailed", True)
    for name in ("parallelism", "recordIndexParallelism"):
        set_field(config, name, 2)
    for check in _CHECKS:
        set_field(config, check, check != "validateBloomFilters" or "bloom_filters" in present)
    validator = utilities.HoodieMetadataTableValidator(table.spark.sparkContext._jsc, config)
    passed = validator.run()
    found = [str(one.toString()) for one in validator.getThrowables()]
    return found if found or passed else ["the validation failed"]
