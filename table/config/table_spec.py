"""What a writer wants a table to be, and how that differs from what it is."""

from __future__ import annotations

from dataclasses import dataclass

from table.config import keys
from table.config.merge_settings import merge_settings
from table.config.table_properties import (
    MergeMode,
    TableProperties,
    TableType,
    key_generator_type,
    new_table_properties,
)
from table.errors import InvalidConfig, Unsupported

WRITTEN_VERSION = 9


@dataclass(frozen=True, slots=True)
class TableSpec:
    """Settings that are fixed when a table is created."""

    name: str
    record_key: tuple[str, ...]
    table_type: TableType = TableType.MERGE_ON_READ
    partition_by: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    merge_mode: MergeMode = MergeMode.COMMIT_TIME
    hive_style: bool = False
    url_encode: bool = False

    def to_properties(self) -> TableProperties:
        """Properties of a new table."""
        return new_table_properties(
            self.name,
            self.table_type,
            self.record_key,
            self.partition_by,
            self.ordering,
            self.merge_mode,
            self.hive_style,
            self.url_encode,
        )

    def check(self, properties: TableProperties, place: str) -> None:
        """Pass when a writer with this spec may write to the table.

        Raises:
            Unsupported: a version, or a metadata table, that this project does not write.
            InvalidConfig: the settings contradict the table's.
        """
        check_writable(properties, place)
        wanted_and_found = {
            "type": (self.table_type, properties.table_type),
            "record_key": (self.record_key, properties.record_key_fields),
            "partition_by": (self.partition_by, properties.partition_fields),
            "ordering": (self.ordering, properties.ordering_fields),
            "merge_mode": (self.merge_mode, properties.merge_mode),
            "key generator": (
                key_generator_type(self.record_key, self.partition_by),
                properties.key_generator,
            ),
            "hive_style": (self.hive_style, properties.hive_style),
            "url_encode": (self.url_encode, properties.url_encode),
        }
        differences = [
            f"{setting} is {_text(found)} in the table and {_text(wanted)} in the pipeline"
            for setting, (wanted, found) in wanted_and_found.items()
            if wanted != found
        ]
        if differences:
            message = (
                f"table {place} does not fit: {'; '.join(differences)}; "
                "change the pipeline, or write to another path"
            )
            raise InvalidConfig(message)


def check_readable(properties: TableProperties, place: str) -> None:
    """Pass when this project reads such tables.

    Raises:
        Unsupported: a bootstrapped table, some of whose rows lie in files of another table.
    """
    source = properties.values.get(keys.BOOTSTRAP_BASE_PATH)
    if source:
        message = (
            f"table {place} was bootstrapped from {source}, where some of its columns still lie; "
            "such tables are not read here; rewrite it with Apache Hudi"
        )
        raise Unsupported(message)


def check_writable(properties: TableProperties, place: str) -> None:
    """Pass when this project writes such tables.

    Raises:
        Unsupported: another version, rows without meta columns, rules of merging beyond the merge
            mode, or a metadata table.
    """
    if properties.version != WRITTEN_VERSION:
        message = (
            f"table {place} is of version {properties.version}; only version {WRITTEN_VERSION} "
            "can be written; upgrade it with Apache Hudi, or write to another path"
        )
        raise Unsupported(message)
    if not properties.populates_meta_columns or _merges_otherwise(properties):
        message = (
            f"table {place} keeps no meta columns, fills rows in part or marks deletes in a column "
            "of its own; such tables are read but not written; write to another path"
        )
        raise Unsupported(message)
    if properties.metadata_partitions:
        message = (
            f"table {place} has a metadata table ({', '.join(properties.metadata_partitions)}), "
            "which this version does not keep true; --drop-metadata-table removes it "
            "(Apache Hudi builds it again at its next write)"
        )
        raise Unsupported(message)


def _merges_otherwise(properties: TableProperties) -> bool:
    settings = merge_settings(properties)
    rules = (settings.partial_update, settings.delete_marker, settings.payload)
    return any(rule is not None for rule in rules)


def _text(value: object) -> str:
    return ",".join(value) or "none" if isinstance(value, tuple) else str(value)
