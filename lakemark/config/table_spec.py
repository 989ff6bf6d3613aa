"""What a writer wants a table to be, and how that differs from what it is."""

from __future__ import annotations

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
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import (
    MergeMode,
    TableProperties,
    TableType,
    new_table_properties,
)
from lakemark.errors import InvalidConfig
from lakemark.model.changes import DeleteMarker
from lakemark.model.format_version import FormatVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """Settings that are fixed when a table is created.

    Attributes:
        name: the table's.
        record_key: columns that make the record key.
        table_type: how changes are kept.
        partition_by: columns that make the partition path.
        ordering: columns that order changes to one record, most significant first.
        merge_mode: which of two changes wins; None infers it (``lakemark.config.merge_request``).
        hive_style: whether folders are named ``field=value``.
        url_encode: whether special characters of a partition value are written ``%XX``.
        partial_update: which values of the winner are filled from the other record.
        unavailable_value: the text that ``FILL_UNAVAILABLE`` fills.
        delete_marker: marks deletes among data rows, besides Hudi's own columns.
        payload: a payload of Apache Hudi, by its class or the last part of it, that says how
            records are merged; a new table says the same in settings of version 9.
        merger: merges in mode ``CUSTOM``.
        metadata_table: whether a new table keeps one; no difference to one that is there.
        version: of a new table; one that is there is continued in its own.
    """

    name: str
    record_key: tuple[str, ...]
    table_type: TableType = TableType.MERGE_ON_READ
    partition_by: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    merge_mode: MergeMode | None = None
    hive_style: bool = False
    url_encode: bool = False
    partial_update: PartialUpdateMode | None = None
    unavailable_value: str | None = None
    delete_marker: DeleteMarker | None = None
    payload: str | None = None
    merger: MergerName | None = None
    metadata_table: bool = True
    version: FormatVersion = FormatVersion.V9

    @property
    def merging(self) -> MergeSettings:
        """What decides between records of one key, nothing of it left out.

        Raises:
            InvalidConfig: settings that do not go together, or an unknown payload.
        """
        settings = self._request.settings()
        return replace(settings, strategy_id=self.merger.strategy_id) if self.merger else settings

    def to_properties(self) -> TableProperties:
        """Properties of a new table.

        Raises:
            InvalidConfig: as ``merging``; or a table of that version cannot say it.
        """
        merging = self.merging
        mode = merging.mode
        if self.version is not FormatVersion.V9 and has_rules(self._request.payload_class):
            mode = MergeMode.CUSTOM
        return new_table_properties(
            self.name,
            self.table_type,
            self.record_key,
            self.partition_by,
            merging.ordering_fields,
            mode,
            self.hive_style,
            self.url_encode,
            merge_properties(merging, self._request.payload_class, self.version),
            self.version,
        )

    def check(self, properties: TableProperties, place: str) -> None:
        """Pass when a writer with this spec may write to the table.

        Raises:
            Unsupported: a property, or its value, that this project does not write.
            InvalidConfig: the settings contradict the table's, or each other.
        """
        check_allows(properties, Purpose.WRITE, place)
        wanted_and_found = {
            "type": (self.table_type, properties.table_type),
            "record_key": (self.record_key, properties.record_key_fields),
            "partition_by": (self.partition_by, properties.partition_fields),
            **self._merging_and_found(properties),
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

    @property
    def _request(self) -> MergeRequest:
        return MergeRequest(
            self.ordering,
            self.merge_mode,
            self.partial_update,
            self.unavailable_value,
            self.delete_marker,
            self.payload,
            self.merger.class_path if self.merger else None,
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
            # Apache Hudi keeps ordering fields beside this mode, which does not look at them.
            del compared["ordering"]
        asked, stored = self._request.payload_class, stored_payload(properties)
        if found.payload is not None or None not in (asked, stored):
            compared["payload"] = (asked, stored)
        return compared


def _lower(strategy_id: str | None) -> str | None:
    return strategy_id.lower() if strategy_id else None


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, DeleteMarker):
        return f"{value.field} = {value.text!r}"
    return ",".join(value) or "none" if isinstance(value, tuple) else str(value)
