"""The settings that a writer has for a table, and their comparison with an existing table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lakemark.config.merge_request import MergeRequest, merge_properties
from lakemark.config.merge_settings import (
    MergeSettings,
    PartialUpdateMode,
    has_rules,
    merge_settings,
    stored_payload,
)
from lakemark.config.merger_name import MergerName
from lakemark.config.new_table_properties import new_table_properties
from lakemark.config.partition_field import PartitionField, partition_fields
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import LoggingMode, MergeMode, TableProperties, TableType
from lakemark.errors import InvalidConfig
from lakemark.model.changes import DeleteMarker
from lakemark.model.format_version import FormatVersion

#: Pattern of allowed table names, which also appear in catalogs, Avro schemas and metrics.
TABLE_NAME_PATTERN = r"[A-Za-z0-9_.-]+"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """Settings that are fixed when a table is created.

    Attributes:
        name: name of the table.
        record_key: columns of the record key; none if each row gets a new, automatic key.
        table_type: decides how changes are stored.
        partition_by: fields of the partition path, see ``lakemark.config.partition_field``.
        ordering: columns that order changes to one record, most significant first.
        merge_mode: decides which of two changes wins; None means that the mode is inferred
            (``lakemark.config.merge_request``).
        hive_style: whether folders are named ``field=value``.
        url_encode: whether special characters of a partition value are written ``%XX``.
        slash_separated_dates: whether the folders of a date are ``yyyy/MM/dd``.
        partial_update: decides which values of the winner come from the other record.
        unavailable_value: the text that ``FILL_UNAVAILABLE`` replaces.
        delete_marker: column and text that mark a data row as a delete, in addition to Hudi's
            columns for deletes.
        payload: a payload class of Apache Hudi, or the last part of its name, whose merge rules
            apply. A new table of version 9 stores these rules as merge settings.
        merger: the user's merger in mode ``CUSTOM``.
        meta_columns: whether rows store Hudi's meta columns.
        cdc: what a new table logs for CDC queries; None if it does not support them, or to leave an
            existing table as it is.
        statistics_columns: the user's columns with statistics; None for the default of a new table,
            or to leave an existing table as it is.
        metadata_table: whether a new table gets a metadata table; it does not change an existing
            table.
        version: version of a new table; an existing table keeps its version.
    """

    name: str
    record_key: tuple[str, ...]
    table_type: TableType = TableType.MERGE_ON_READ
    partition_by: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    merge_mode: MergeMode | None = None
    hive_style: bool = False
    url_encode: bool = False
    slash_separated_dates: bool = False
    partial_update: PartialUpdateMode | None = None
    unavailable_value: str | None = None
    delete_marker: DeleteMarker | None = None
    payload: str | None = None
    merger: MergerName | None = None
    meta_columns: bool = True
    cdc: LoggingMode | None = None
    statistics_columns: tuple[str, ...] | None = None
    metadata_table: bool = True
    version: FormatVersion = FormatVersion.V9

    @property
    def partition_fields(self) -> tuple[PartitionField, ...]:
        """The fields of the partition path.

        Raises:
            InvalidConfig: a field cannot be parsed; or two fields contradict each other.
        """
        return partition_fields(self.partition_by)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns from which the partition path is computed."""
        return tuple(dict.fromkeys(field.column for field in self.partition_fields))

    @property
    def stored_partition_columns(self) -> tuple[str, ...]:
        """The partition columns of a new table."""
        return tuple(field.stored_column for field in self.partition_fields)

    @property
    def partition_expressions(self) -> tuple[PartitionField, ...]:
        """The partition columns of a new table that are computed from other columns.

        Raises:
            InvalidConfig: an expression has another time zone than UTC.
        """
        found = tuple(field for field in self.partition_fields if field.is_expression)
        for field in found:
            if not field.is_storable_expression:
                message = (
                    f"partition_by {field} is for existing tables only: the days and hours of a "
                    "new table are in UTC, so that a filter on the column selects their folders; "
                    "omit the time zone"
                )
                raise InvalidConfig(message)
        return found

    @property
    def merging(self) -> MergeSettings:
        """The complete merge settings.

        Raises:
            InvalidConfig: settings contradict each other, or the payload is unknown.
        """
        settings = self._request.resolve()
        return replace(settings, strategy_id=self.merger.strategy_id) if self.merger else settings

    def to_properties(self) -> TableProperties:
        """Build the properties of a new table.

        Raises:
            InvalidConfig: settings contradict each other, the payload is unknown, or a table of
                this version cannot store a setting.
        """
        expressions = self.partition_expressions
        merging = self.merging
        mode = merging.mode
        if self.version is not FormatVersion.V9 and has_rules(self._request.payload_class):
            mode = MergeMode.CUSTOM
        properties = new_table_properties(
            self.name,
            self.table_type,
            self.record_key,
            self.stored_partition_columns,
            merging.ordering_fields,
            mode,
            self.hive_style,
            self.url_encode,
            merge_properties(merging, self._request.payload_class, self.version),
            self.version,
            slash_separated_dates=self.slash_separated_dates,
            meta_columns=self.meta_columns,
            cdc=self.cdc,
        )
        properties = properties.with_statistics_columns(self.statistics_columns)
        return properties.with_partition_expressions(expressions) if expressions else properties

    def check(self, properties: TableProperties, url: str) -> None:
        """Check that a writer with this spec may write to an existing table.

        Raises:
            Unsupported: a property of the table does not allow lakemark to write.
            InvalidConfig: the settings contradict those of the table, or each other.
        """
        check_allows(properties, Purpose.WRITE, url)
        wanted_and_found = {
            "type": (self.table_type, properties.table_type),
            "record_key": (self.record_key, properties.record_key_fields),
            "partition_by": (_names(self.partition_fields), _names(properties.partition_by)),
            **self._merging_and_found(properties),
            "hive_style": (self.hive_style, properties.hive_style),
            "url_encode": (self.url_encode, properties.url_encode),
            "slash_separated_dates": (
                self.slash_separated_dates,
                properties.slash_separated_dates,
            ),
            "meta_columns": (self.meta_columns, properties.populates_meta_columns),
        }
        if self.cdc is not None:
            found_mode = properties.cdc_logging_mode if properties.cdc_enabled else None
            wanted_and_found["cdc"] = self.cdc, found_mode
        if self.statistics_columns is not None:
            found_columns = properties.statistics_columns
            wanted_and_found["statistics_columns"] = self.statistics_columns, found_columns
        differences = [
            f"{setting} is {_text(found)} in the table and {_text(wanted)} in the pipeline"
            for setting, (wanted, found) in wanted_and_found.items()
            if wanted != found
        ]
        if differences:
            message = (
                f"table {url} does not match the settings: {'; '.join(differences)}; "
                "change the pipeline, or write to another path"
            )
            raise InvalidConfig(message)

    @property
    def _request(self) -> MergeRequest:
        return MergeRequest(
            ordering=self.ordering,
            merge_mode=self.merge_mode,
            partial_update=self.partial_update,
            unavailable_value=self.unavailable_value,
            delete_marker=self.delete_marker,
            payload=self.payload,
            merger_class=self.merger.class_path if self.merger else None,
        )

    def _merging_and_found(self, properties: TableProperties) -> dict[str, tuple[object, object]]:
        wanted, found = self.merging, merge_settings(properties)
        compared: dict[str, tuple[object, object]] = {
            "ordering": (wanted.ordering_fields, found.ordering_fields),
            "merge_mode": (wanted.mode, found.mode),
            "partial_update": (wanted.partial_update, found.partial_update),
            "unavailable_value": (wanted.unavailable_value, found.unavailable_value),
            "delete_marker": (wanted.delete_marker, found.delete_marker),
            "merge strategy": (_lower(wanted.strategy_id), _lower(found.strategy_id)),
        }
        if wanted.mode is MergeMode.COMMIT_TIME and not wanted.ordering_fields:
            # Apache Hudi may store ordering fields with this mode, which ignores them.
            del compared["ordering"]
        asked, stored = self._request.payload_class, stored_payload(properties)
        if found.payload is not None or None not in (asked, stored):
            compared["payload"] = (asked, stored)
        return compared


def _names(fields: Iterable[PartitionField]) -> tuple[str, ...]:
    return tuple(map(str, fields))


def _lower(strategy_id: str | None) -> str | None:
    return strategy_id.lower() if strategy_id else None


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, DeleteMarker):
        return f"{value.field} = {value.text!r}"
    return ",".join(value) or "none" if isinstance(value, tuple) else str(value)
