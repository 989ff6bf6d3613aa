"""Builds the properties of a new table, and of a new metadata table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from lakemark.config import keys
from lakemark.config.key_generators import class_of_type, infer_key_generator
from lakemark.config.table_properties import LoggingMode, MergeMode, TableProperties, TableType
from lakemark.model.format_version import FormatVersion

#: The extractor is what Apache Hudi stores with it, and what its catalogs parse paths with.
_SLASH_SEPARATED = {
    keys.SLASH_SEPARATED_DATES: "true",
    keys.PARTITION_EXTRACTOR_CLASS: "org.apache.hudi.hive.SlashEncodedDayPartitionValueExtractor",
}


def new_table_properties(
    name: str,
    table_type: TableType,
    record_key_fields: Iterable[str],
    partition_fields: Iterable[str],
    ordering_fields: Iterable[str],
    merge_mode: MergeMode,
    hive_style: bool = False,
    url_encode: bool = False,
    merging: Mapping[str, str] = MappingProxyType({}),
    version: FormatVersion = FormatVersion.V9,
    *,
    slash_separated_dates: bool = False,
    meta_columns: bool = True,
    cdc: LoggingMode | None = None,
) -> TableProperties:
    """Build the properties of a new table, with its timeline in UTC.

    For version 9 the properties are those that Apache Hudi 1.2 writes. For earlier versions they
    are those that Hudi releases of that time wrote; Hudi 1.2 reads these too.

    Args:
        name: name of the table.
        table_type: decides how changes are stored.
        record_key_fields: columns of the record key; none if record keys are automatic.
        partition_fields: columns of the partition path.
        ordering_fields: columns that order changes to one record.
        merge_mode: decides which of two changes wins.
        hive_style: whether folders are named ``field=value``.
        url_encode: whether special characters of a partition value are written ``%XX``.
        merging: other properties about merging, see ``merge_request.merge_properties``.
        version: version of the table.
        slash_separated_dates: whether the folders of a date are ``yyyy/MM/dd``.
        meta_columns: whether rows store Hudi's meta columns.
        cdc: what is logged for CDC queries; None if the table does not support them.
    """
    record_key, partition = tuple(record_key_fields), tuple(partition_fields)
    ordering = ",".join(ordering_fields)
    return TableProperties(
        {
            keys.TABLE_NAME: name,
            keys.TABLE_TYPE: table_type,
            keys.TABLE_VERSION: str(int(version)),
            **layout_properties(version),
            keys.TIMELINE_TIMEZONE: "UTC",
            **({keys.RECORD_KEY_FIELDS: ",".join(record_key)} if record_key else {}),
            **({keys.PARTITION_FIELDS: ",".join(partition)} if partition else {}),
            **({ordering_key(version): ordering} if ordering else {}),
            **({} if version is FormatVersion.V6 else {keys.MERGE_MODE: merge_mode}),
            **merging,
            **key_generator_properties(infer_key_generator(record_key, partition), version),
            keys.POPULATE_META_FIELDS: str(meta_columns).lower(),
            keys.BASE_FILE_FORMAT: "PARQUET",
            keys.HIVE_STYLE_PARTITIONING: str(hive_style).lower(),
            keys.URL_ENCODE_PARTITIONING: str(url_encode).lower(),
            **(_SLASH_SEPARATED if slash_separated_dates else {}),
            keys.DROP_PARTITION_COLUMNS: "false",
            keys.CDC_ENABLED: str(cdc is not None).lower(),
            **({} if cdc is None else {keys.CDC_LOGGING_MODE: cdc}),
            keys.PARTITION_METAFILE_USE_BASE_FORMAT: "false",
            keys.MULTIPLE_BASE_FILE_FORMATS: "false",
            keys.METADATA_PARTITIONS: "",
        }
    )


def ordering_key(version: FormatVersion) -> str:
    """Return the key of the property that stores the ordering fields."""
    return keys.ORDERING_FIELDS if version is FormatVersion.V9 else keys.PRECOMBINE_FIELD


def key_generator_properties(kind: str, version: FormatVersion) -> dict[str, str]:
    """Return the properties that store a key generator.

    For version 6 they include the class, because releases of that version read it.
    """
    class_name = class_of_type(kind) if version is FormatVersion.V6 else None
    named = {keys.KEY_GENERATOR_CLASS: class_name} if class_name else {}
    return {keys.KEY_GENERATOR_TYPE: kind, **named}


def layout_properties(version: FormatVersion) -> dict[str, str]:
    """Return the properties that describe the timeline of a table of this version."""
    if version.timeline_layout == 1:
        return {keys.TIMELINE_LAYOUT_VERSION: "1", keys.ARCHIVELOG_FOLDER: "archived"}
    return {
        keys.INITIAL_VERSION: str(int(version)),
        keys.TIMELINE_LAYOUT_VERSION: "2",
        keys.TIMELINE_PATH: "timeline",
        keys.TIMELINE_HISTORY_PATH: "history",
        keys.ARCHIVELOG_FOLDER: "history",
        **({keys.TABLE_FORMAT: "native"} if version is FormatVersion.V9 else {}),
    }


def metadata_table_properties(data: TableProperties) -> TableProperties:
    """Build the properties of a table's metadata table, as Apache Hudi 1.2 writes them."""
    version = FormatVersion(data.version)
    mode = {} if version is FormatVersion.V6 else {keys.MERGE_MODE: str(MergeMode.CUSTOM)}
    layout = layout_properties(version)
    layout.pop(keys.TABLE_FORMAT, None)
    return TableProperties(
        {
            keys.TABLE_NAME: f"{data.table_name}_metadata",
            keys.TABLE_TYPE: TableType.MERGE_ON_READ,
            keys.TABLE_VERSION: str(data.version),
            **layout,
            keys.RECORD_KEY_FIELDS: "key",
            keys.PAYLOAD_CLASS: "org.apache.hudi.metadata.HoodieMetadataPayload",
            **mode,
            keys.MERGE_STRATEGY_ID: "00000000-0000-0000-0000-000000000000",
            keys.KEY_GENERATOR_TYPE: "HOODIE_TABLE_METADATA",
            keys.POPULATE_META_FIELDS: "false",
            keys.BASE_FILE_FORMAT: "HFILE",
            keys.DROP_PARTITION_COLUMNS: "false",
            **(
                {keys.TIMELINE_TIMEZONE: data.values[keys.TIMELINE_TIMEZONE]}
                if keys.TIMELINE_TIMEZONE in data.values
                else {}
            ),
        }
    )
