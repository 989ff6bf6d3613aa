"""The table that a pipeline writes to: what the file says, held against what is there."""

from __future__ import annotations

import pyarrow as pa

from sinks.hudi.bucket_check import check_buckets
from streamer.config.pipeline import PipelineConfig
from table.config.table_properties import MergeMode, TableType
from table.config.table_spec import TableSpec, check_writable
from table.errors import InvalidConfig, TableNotFound, Unsupported
from table.hudi_table import HudiTable, open_table
from table.index.bucket import BucketIndex
from table.model.meta_columns import without_meta_columns
from table.read.renamed_columns import LATEST_SCHEMA
from table.storage import StorageLocation

_TYPES = {
    "merge_on_read": TableType.MERGE_ON_READ,
    "copy_on_write": TableType.COPY_ON_WRITE,
}
_MODES = {"event_time": MergeMode.EVENT_TIME, "commit_time": MergeMode.COMMIT_TIME}


def table_spec(config: PipelineConfig) -> TableSpec:
    """What the pipeline file wants the table to be."""
    table = config.table
    return TableSpec(
        name=table.name,
        record_key=table.record_key,
        table_type=_TYPES[table.type],
        partition_by=table.partition_by,
        ordering=table.ordering,
        merge_mode=_MODES[table.merge_mode],
        hive_style=table.hive_style,
        url_encode=table.url_encode,
    )


def find_table(location: StorageLocation, drop_metadata_table: bool) -> HudiTable | None:
    """The table at a place, or None when the place is empty.

    Args:
        location: of the table.
        drop_metadata_table: consent to remove a metadata table, which nobody here keeps true.
    """
    try:
        table = open_table(location)
    except TableNotFound:
        return None
    if drop_metadata_table and table.properties.metadata_partitions:
        check_writable(table.properties.without_metadata_table(), location.url)
        table.drop_metadata_table()
    return table


def check_table(table: HudiTable, spec: TableSpec, index: BucketIndex, columns: pa.Schema) -> None:
    """Pass when the pipeline may go on with the table.

    Raises:
        Unsupported: a table that this project does not write.
        InvalidConfig: keys, ordering, merge mode, buckets or columns contradict the pipeline.
    """
    spec.check(table.properties, table.location.url)
    if table.schema is None:
        return
    _check_evolution(table)
    check_buckets(table, index)
    _check_columns(table, columns)


def _check_evolution(table: HudiTable) -> None:
    newest = table.newest_metadata()
    if newest is not None and newest.extra_metadata.get(LATEST_SCHEMA):
        message = (
            f"table {table.location.url} keeps an evolved schema beside its commits "
            "(hoodie.schema.on.read.enable), which this version does not carry on; write to "
            "another path"
        )
        raise Unsupported(message)


def _check_columns(table: HudiTable, columns: pa.Schema) -> None:
    """Columns may be added. One that is missing, or of another type, would lose values."""
    schema = table.schema
    assert schema is not None
    for field in without_meta_columns(schema):
        index = columns.get_field_index(field.name)
        wanted = "absent" if index < 0 else str(columns.field(index).type)
        if wanted != str(field.type):
            message = (
                f"column {field.name} is {field.type} in table {table.location.url} and {wanted} "
                "in the pipeline; declare it as it is in the table"
            )
            raise InvalidConfig(message)
