"""Reads and writes the properties of a table, in ``.hoodie/hoodie.properties``.

The file has the syntax of ``java.util.Properties``. From version 4 on it has a checksum, which is a
CRC-32 of ``<database>.<table>``, and Apache Hudi refuses a file with a wrong one. Source:
``HoodieTableConfig`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from lakemark.config import keys
from lakemark.config.key_generators import (
    SIMPLE_FIELD,
    TIMESTAMP_FIELD,
    KeyGeneratorType,
    class_of_type,
    find_implemented,
    infer_key_generator,
    type_of_class,
)
from lakemark.config.partition_field import PartitionField
from lakemark.config.properties_text import parse_properties, print_properties
from lakemark.config.time_folders import zone_name
from lakemark.errors import CorruptData, InvalidConfig, Unsupported
from lakemark.model.format_version import FormatVersion

PROPERTIES_PATH = ".hoodie/hoodie.properties"
BACKUP_PATH = ".hoodie/hoodie.properties.backup"

#: Indexes in the metadata table that lakemark updates but does not create by itself.
MAINTAINED_INDEXES = ("bloom_filters", "record_index")

#: The prefix of partitions with secondary indexes, which lakemark updates, too. They locate rows by
#: their record keys, so a table needs a record index for them.
SECONDARY_INDEX_PREFIX = "secondary_index_"


#: The prefix of partitions with expression indexes, which lakemark updates, too, if it computes the
#: expressions.
EXPRESSION_INDEX_PREFIX = "expr_index_"


class TableType(StrEnum):
    """Decides how changes are stored; the values are the stored names."""

    MERGE_ON_READ = "MERGE_ON_READ"
    COPY_ON_WRITE = "COPY_ON_WRITE"


class MergeMode(StrEnum):
    """Decides which of two changes to one record wins; the values are the stored names."""

    EVENT_TIME = "EVENT_TIME_ORDERING"
    COMMIT_TIME = "COMMIT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


class LoggingMode(StrEnum):
    """Decides what the ``.cdc`` files of a copy-on-write table contain for each change.

    The values are the stored names.
    """

    OP_KEY_ONLY = "OP_KEY_ONLY"
    DATA_BEFORE = "DATA_BEFORE"
    DATA_BEFORE_AFTER = "DATA_BEFORE_AFTER"


#: How many stored properties are remembered after they were parsed.
_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The stored properties, with typed access to those that lakemark uses."""

    values: Mapping[str, str]

    @property
    def table_name(self) -> str:
        """The name of the table."""
        return self.values[keys.TABLE_NAME]

    @property
    def create_schema(self) -> dict[str, Any] | None:
        """The Avro schema with which the table was created; None if it is not stored.

        It is valid until the first commit.

        Raises:
            CorruptData: the stored text is not a JSON object.
        """
        text = self.values.get(keys.CREATE_SCHEMA, "")
        if not text.strip():
            return None
        try:
            schema = json.loads(text)
        except (ValueError, RecursionError):
            schema = None
        if not isinstance(schema, dict):
            raise CorruptData(
                PROPERTIES_PATH, None, f"an Avro schema in {keys.CREATE_SCHEMA}", repr(text[:80])
            )
        return schema

    @property
    def table_type(self) -> TableType:
        """Merge on read or copy on write."""
        return TableType(self.values.get(keys.TABLE_TYPE, TableType.COPY_ON_WRITE))

    @property
    def is_merge_on_read(self) -> bool:
        """Whether changes are written to log files."""
        return self.table_type is TableType.MERGE_ON_READ

    @property
    def version(self) -> int:
        """The table version (``FormatVersion``); 0 if it is not stored."""
        return int(self.values.get(keys.TABLE_VERSION, "0"))

    @property
    def has_known_version(self) -> bool:
        """Whether lakemark can read tables of this version."""
        return self.version in [*FormatVersion]

    @property
    def timeline_folder(self) -> str:
        """Folder of the timeline inside ``.hoodie``, for table version 8 and later."""
        return self.values.get(keys.TIMELINE_PATH, "timeline")

    @property
    def history_folder(self) -> str:
        """Folder of archived instants inside ``timeline_folder``, for table version 8 and later."""
        return self.values.get(keys.TIMELINE_HISTORY_PATH, "history")

    @property
    def archive_folder(self) -> str:
        """Folder of archived instants inside ``.hoodie``, for table version 6. It may be ""."""
        return self.values.get(keys.ARCHIVELOG_FOLDER, "archived")

    @property
    def record_key_fields(self) -> tuple[str, ...]:
        """Columns of the record key."""
        return _csv(self.values.get(keys.RECORD_KEY_FIELDS))

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """Columns of the partition path; empty for a table without partitions.

        The custom key generator stores ``field:TYPE``; the types are removed.
        """
        return tuple(name for name, _ in self._typed_partition_fields)

    @property
    def partition_by(self) -> tuple[PartitionField, ...]:
        """Fields of the partition path, with the format of those that are times.

        The pattern and the time zone are those that the table stores, whether or not lakemark can
        write them. They are empty if the table does not store them. A field that is stored in a
        column of its own has the expression that the table stores for this column, if lakemark can
        evaluate it.
        """
        expressions = {one.stored_column: one for one in self.partition_expressions}
        is_timestamp = find_implemented(self.key_generator) is KeyGeneratorType.TIMESTAMP
        pattern = self.values.get(keys.TIMESTAMP_OUTPUT_FORMAT, "")
        zone = zone_name(self.values)
        return tuple(
            PartitionField(name, pattern, zone)
            if is_timestamp or kind == TIMESTAMP_FIELD
            else expressions.get(name, PartitionField(name))
            for name, kind in self._typed_partition_fields
        )

    @property
    def partition_expressions(self) -> tuple[PartitionField, ...]:
        """The partition columns that lakemark computes from other columns.

        Empty if lakemark does not understand the stored property; then it refuses to write.
        """
        try:
            return self.parse_partition_expressions()
        except InvalidConfig:
            return ()

    def parse_partition_expressions(self) -> tuple[PartitionField, ...]:
        """Parse the stored property ``lakemark.partition.expressions``.

        Raises:
            InvalidConfig: the text, or one of the expressions, is unknown; or a column is not a
                partition column whose values are the folders.
        """
        text = self.values.get(keys.PARTITION_EXPRESSIONS)
        if text is None:
            return ()
        try:
            stored = json.loads(text)
        except (ValueError, RecursionError):
            stored = None
        if not isinstance(stored, dict):
            message = f"{text!r} is not a JSON object of expressions"
            raise InvalidConfig(message)
        parsed = tuple(PartitionField.parse(str(each)).named(name) for name, each in stored.items())
        columns = self.partition_fields if self.folders_are_values else ()
        for one in parsed:
            if not one.is_storable_expression or one.stored_column not in columns:
                message = f"{one} in {keys.PARTITION_EXPRESSIONS} is not a partition column"
                raise InvalidConfig(message)
        return parsed

    @property
    def formats_times(self) -> bool:
        """Whether a folder of the partition path is a formatted time, which no column stores."""
        stored = self.partition_expressions
        return any(field.pattern is not None for field in self.partition_by if field not in stored)

    @property
    def lacks_partition_types(self) -> bool:
        """Whether the custom key generator has partition fields without a stored type."""
        is_custom = find_implemented(self.key_generator) is KeyGeneratorType.CUSTOM
        known = (SIMPLE_FIELD, TIMESTAMP_FIELD)
        return is_custom and any(kind not in known for _, kind in self._typed_partition_fields)

    @property
    def _typed_partition_fields(self) -> list[tuple[str, str]]:
        """The partition fields with their types, which are empty except for ``CUSTOM``."""
        stored = [field.partition(":") for field in _csv(self.values.get(keys.PARTITION_FIELDS))]
        return [(name, kind.strip().upper()) for name, _, kind in stored]

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """Columns that order changes to one record, most significant first."""
        stored = self.values.get(keys.ORDERING_FIELDS)
        return _csv(stored or self.values.get(keys.PRECOMBINE_FIELD))

    @property
    def merge_mode(self) -> MergeMode:
        """The stored merge mode, or the one that Hudi infers from the ordering fields."""
        stored = self.values.get(keys.MERGE_MODE)
        if stored:
            return MergeMode(stored)
        return MergeMode.EVENT_TIME if self.ordering_fields else MergeMode.COMMIT_TIME

    @property
    def cdc_logging_mode(self) -> LoggingMode | None:
        """The stored logging mode, or Hudi's default; None if the stored mode is unknown."""
        word = self.values.get(keys.CDC_LOGGING_MODE) or LoggingMode.DATA_BEFORE_AFTER
        known = {mode.value: mode for mode in LoggingMode}
        return known.get(word.strip().upper())

    @property
    def has_automatic_keys(self) -> bool:
        """Whether each inserted row gets a new record key, because the table has no key fields."""
        return not self.record_key_fields

    @property
    def key_generator(self) -> str:
        """Type of the key generator.

        If the table stores a class, this is the type of the class. Otherwise it is the stored type.
        If the table stores neither, the type is inferred from the fields. The type of a user's
        class is ``USER_PROVIDED``.
        """
        class_name = self.values.get(keys.KEY_GENERATOR_CLASS)
        if class_name:
            return type_of_class(class_name)
        stored = self.values.get(keys.KEY_GENERATOR_TYPE)
        if stored:
            return stored
        return infer_key_generator(self.record_key_fields, self.partition_fields)

    @property
    def key_generator_class(self) -> str | None:
        """The Java class of the key generator; None for a user's class that is not stored."""
        return self.values.get(keys.KEY_GENERATOR_CLASS) or class_of_type(self.key_generator)

    @property
    def folders_are_values(self) -> bool:
        """Whether each folder of a partition path is the value of one partition field.

        False if no key generator is stored, because the writer may have used a different one from
        the inferred one. Slash-separated dates are in several folders, and their values are known
        only if there is one partition field, and no Hive-style folders.
        """
        if self.slash_separated_dates and (self.hive_style or len(self.partition_fields) > 1):
            return False
        if not {keys.KEY_GENERATOR_TYPE, keys.KEY_GENERATOR_CLASS} & self.values.keys():
            return False
        kind = find_implemented(self.key_generator)
        return kind in (KeyGeneratorType.SIMPLE, KeyGeneratorType.COMPLEX)

    @property
    def hive_style(self) -> bool:
        """Whether a partition folder is named ``field=value``."""
        return _flag(self.values.get(keys.HIVE_STYLE_PARTITIONING))

    @property
    def url_encode(self) -> bool:
        """Whether special characters of a partition value are written ``%XX``."""
        return _flag(self.values.get(keys.URL_ENCODE_PARTITIONING))

    @property
    def slash_separated_dates(self) -> bool:
        """Whether the rows of the partition value ``2026-01-02`` are in ``2026/01/02``.

        Tables without partitions may have the property, too. It then has no effect.
        """
        stored = _flag(self.values.get(keys.SLASH_SEPARATED_DATES))
        return stored and bool(self.partition_fields)

    @property
    def populates_meta_columns(self) -> bool:
        """Whether rows have the five meta columns; if not, keys are computed when rows are read."""
        return _flag(self.values.get(keys.POPULATE_META_FIELDS, "true"))

    @property
    def drops_partition_columns(self) -> bool:
        """Whether the files lack the partition columns, whose values are only in the path."""
        return _flag(self.values.get(keys.DROP_PARTITION_COLUMNS))

    @property
    def cdc_enabled(self) -> bool:
        """Whether the table stores changes for CDC queries."""
        return _flag(self.values.get(keys.CDC_ENABLED))

    @property
    def statistics_columns(self) -> tuple[str, ...] | None:
        """The user's columns with statistics; None for those that are chosen by default."""
        listed = self.values.get(keys.STATISTICS_COLUMNS)
        return None if listed is None else _csv(listed)

    def with_statistics_columns(self, columns: Iterable[str] | None) -> TableProperties:
        """Return the properties with other columns with statistics; None for the default ones."""
        others = {k: v for k, v in self.values.items() if k != keys.STATISTICS_COLUMNS}
        listed = {} if columns is None else {keys.STATISTICS_COLUMNS: ",".join(columns)}
        return TableProperties({**others, **listed})

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """Complete partitions of the metadata table; empty if there is no metadata table.

        Empty, too, in versions before 6, whose metadata tables are not read: their records have
        other forms. Queries then list storage.
        """
        return self.stored_metadata_partitions if self.version >= FormatVersion.V6 else ()

    @property
    def stored_metadata_partitions(self) -> tuple[str, ...]:
        """Complete partitions of the metadata table, even if lakemark cannot read them."""
        inflight = self.inflight_metadata_partitions
        listed = _csv(self.values.get(keys.METADATA_PARTITIONS))
        return tuple(name for name in listed if name not in inflight)

    @property
    def inflight_metadata_partitions(self) -> tuple[str, ...]:
        """Partitions of the metadata table that are being built."""
        return _csv(self.values.get(keys.METADATA_PARTITIONS_INFLIGHT))

    @property
    def names_metadata_table(self) -> bool:
        """Whether there is a metadata table, complete or being built."""
        return bool(self.stored_metadata_partitions or self.inflight_metadata_partitions)

    @property
    def metadata_indexes(self) -> tuple[str, ...]:
        """The indexes of the metadata table that a new metadata table must have, too.

        If there is no metadata table, these are the indexes of the one that was dropped.
        """
        listed = self.metadata_partitions
        if not self.names_metadata_table:
            listed = _csv(self.values.get(keys.DROPPED_INDEXES))
        maintained = [name for name in MAINTAINED_INDEXES if name in listed]
        if self.version >= FormatVersion.V8:
            secondary = (SECONDARY_INDEX_PREFIX,) if "record_index" in listed else ()
            prefixes = (EXPRESSION_INDEX_PREFIX, *secondary)
            maintained += sorted(name for name in listed if name.startswith(prefixes))
        return tuple(maintained)

    def with_metadata_partitions(self, partitions: Iterable[str]) -> TableProperties:
        """Return the properties with these complete partitions of the metadata table.

        No partition is listed as being built or as dropped.
        """
        named = {
            keys.METADATA_PARTITIONS: ",".join(sorted(partitions)),
            keys.METADATA_PARTITIONS_INFLIGHT: "",
            keys.INDEX_DEFINITIONS_PATH: ".hoodie/.index_defs/index.json",
        }
        return TableProperties({**self._without_dropped_indexes, **named})

    def without_metadata_partitions(self, partitions: Collection[str]) -> TableProperties:
        """Return the properties without some partitions of the metadata table.

        They are neither complete, nor being built, nor built again with the next metadata table.
        """
        listed = (keys.METADATA_PARTITIONS, keys.METADATA_PARTITIONS_INFLIGHT, keys.DROPPED_INDEXES)
        left = {
            key: ",".join(one for one in _csv(self.values[key]) if one not in partitions)
            for key in listed
            if not set(_csv(self.values.get(key))).isdisjoint(partitions)
        }
        changed = {**self.values, **left}
        if not changed.get(keys.DROPPED_INDEXES):
            changed.pop(keys.DROPPED_INDEXES, None)
        return TableProperties(changed)

    def with_partition_expressions(self, fields: Iterable[PartitionField]) -> TableProperties:
        """Return the properties of a table whose partition columns have these expressions."""
        named = {field.stored_column: field.expression for field in fields}
        return TableProperties({**self.values, keys.PARTITION_EXPRESSIONS: json.dumps(named)})

    def without_metadata_table(self, *, keeps_indexes: bool = True) -> TableProperties:
        """Return the properties without a metadata table, so that readers list storage instead.

        Args:
            keeps_indexes: whether the next metadata table has the maintained indexes of this one.
        """
        cleared = {keys.METADATA_PARTITIONS: "", keys.METADATA_PARTITIONS_INFLIGHT: ""}
        if keeps_indexes and self.metadata_indexes:
            cleared[keys.DROPPED_INDEXES] = ",".join(self.metadata_indexes)
        return TableProperties({**self._without_dropped_indexes, **cleared})

    def with_dropped_indexes(self, indexes: Iterable[str]) -> TableProperties:
        """Return the properties without a metadata table; the next one has these indexes."""
        bare = self.without_metadata_table(keeps_indexes=False)
        named = ",".join(indexes)
        return TableProperties(
            {**bare.values, keys.DROPPED_INDEXES: named} if named else bare.values
        )

    @property
    def _without_dropped_indexes(self) -> dict[str, str]:
        return {key: text for key, text in self.values.items() if key != keys.DROPPED_INDEXES}

    def to_bytes(self) -> bytes:
        """Encode the properties and their checksum, sorted by key."""
        stored = {**self.values, keys.TABLE_CHECKSUM: checksum(self.values)}
        return print_properties(stored, "Properties of an Apache Hudi table")

    @classmethod
    @lru_cache(_REMEMBERED)
    def parse(cls, data: bytes, path: str = PROPERTIES_PATH) -> TableProperties:
        """Parse the stored properties.

        The result is remembered, because each commit reads the same properties several times.

        Raises:
            CorruptData: there is no table name or no valid checksum (a table of a version before 4
                may lack it); the version of the table is not a number; or the table type or merge
                mode is unknown although the version is known.
            Unsupported: the table type or merge mode is unknown, and the version is unknown too.
        """
        values = parse_properties(data)
        if keys.TABLE_NAME not in values:
            raise CorruptData(path, None, f"the property {keys.TABLE_NAME}", "none")
        properties = cls(values)
        _check_version(properties, path)
        _check_checksum(properties, path)
        _check_word(properties, path, keys.TABLE_TYPE, [*TableType])
        if values.get(keys.MERGE_MODE):
            _check_word(properties, path, keys.MERGE_MODE, [*MergeMode])
        return properties


def _check_version(properties: TableProperties, path: str) -> None:
    try:
        _ = properties.version
    except ValueError:
        found = repr(properties.values[keys.TABLE_VERSION])
        raise CorruptData(path, None, f"a number as {keys.TABLE_VERSION}", found) from None


def _check_checksum(properties: TableProperties, path: str) -> None:
    stored = properties.values.get(keys.TABLE_CHECKSUM)
    is_old = FormatVersion.V2 <= properties.version < FormatVersion.V4
    expected = checksum(properties.values)
    if stored != expected and not (is_old and stored is None):
        raise CorruptData(path, None, f"{keys.TABLE_CHECKSUM}={expected}", stored or "none")


def _check_word(properties: TableProperties, path: str, key: str, known: list[str]) -> None:
    """Check that the value of a property is one of the known words.

    If the table version is unknown, another word may be valid in that version, so the error is
    Unsupported instead of CorruptData.
    """
    word = properties.values.get(key)
    if word is None or word in known:
        return
    if properties.has_known_version:
        raise CorruptData(path, None, f"{' or '.join(known)} as {key}", repr(word))
    message = (
        f"{path}: {key} is {word!r} in a table of version {properties.version}, which lakemark "
        "cannot read; read the table with Apache Hudi"
    )
    raise Unsupported(message)


def checksum(values: Mapping[str, str]) -> str:
    """Return ``hoodie.table.checksum``: the CRC-32 of ``<database>.<table>``, in decimal."""
    name = f"{values.get(keys.DATABASE_NAME, '')}.{values.get(keys.TABLE_NAME, '')}"
    return str(zlib.crc32(name.encode()))


def _csv(value: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (value or "").split(",") if part.strip())


def _flag(value: str | None) -> bool:
    """Parse a boolean as Java's ``Boolean.parseBoolean``: ``true`` with a space is false."""
    return (value or "").lower() == "true"
