"""Reads the settings that decide how records of one key are merged, for all table versions.

Tables of version 9 store merge mode, partial update mode and delete marker. Earlier versions store
a Java class instead, the payload. ``_PAYLOADS`` has the settings that each payload of Apache Hudi
1.2.0 implies. A table of version 9 may store a payload too, with merge mode ``CUSTOM``.
Source: ``HoodieTableConfig.inferMergingConfigsForPreV9Table``,
``HoodieTableConfig.getTableMergeProperties`` and the payload classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from lakemark.config import keys
from lakemark.config.table_properties import MergeMode, TableProperties
from lakemark.errors import Unsupported
from lakemark.model.changes import DeleteMarker


class PartialUpdateMode(StrEnum):
    """Decides which values of the winning record are replaced by those of the other record.

    ``IGNORE_DEFAULTS`` replaces nulls and defaults of the column. ``FILL_UNAVAILABLE`` replaces a
    text that means "unavailable". Each member has the name that the table's properties store.
    """

    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"


class Payload(StrEnum):
    """A payload with merge rules beyond those of a merge mode; the values are the Java classes."""

    OVERWRITE_NON_DEFAULTS = (
        "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload"
    )
    PARTIAL_UPDATE = "org.apache.hudi.common.model.PartialUpdateAvroPayload"
    MYSQL_DEBEZIUM = "org.apache.hudi.common.model.debezium.MySqlDebeziumAvroPayload"
    POSTGRES_DEBEZIUM = "org.apache.hudi.common.model.debezium.PostgresDebeziumAvroPayload"
    AWS_DMS = "org.apache.hudi.common.model.AWSDmsAvroPayload"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """Settings that decide how records of one key are merged.

    Attributes:
        mode: decides which of two records wins.
        ordering_fields: columns that event time compares.
        partial_update: decides which values of the winner come from the other record; None if the
            winner keeps all its values.
        unavailable_value: the text that ``FILL_UNAVAILABLE`` replaces.
        payload: the payload that the table stores, if its rules are not those of a mode.
        delete_marker: column and text that mark a data row as a delete, in addition to Hudi's
            columns for deletes.
        strategy_id: the UUID of a custom merger; None if a mode or a payload decides.
        merger_class: class path (``MergerName``) of the merger that implements the strategy. Tables
            do not store it, so each process that merges records must receive it as a setting.
    """

    mode: MergeMode
    ordering_fields: tuple[str, ...] = ()
    partial_update: PartialUpdateMode | None = None
    unavailable_value: str | None = None
    payload: Payload | None = None
    delete_marker: DeleteMarker | None = None
    strategy_id: str | None = None
    merger_class: str | None = None


def merge_settings(properties: TableProperties) -> MergeSettings:
    """Return the merge settings of a table.

    Raises:
        Unsupported: the payload or the partial update mode is unknown.
    """
    ordering = properties.ordering_fields
    mode = _mode(properties)
    if mode is MergeMode.CUSTOM:
        return _of_custom(properties)
    if mode is MergeMode.EVENT_TIME and not ordering:
        # Without ordering values all records are equal, and of equal records the later one wins.
        mode = MergeMode.COMMIT_TIME
    return MergeSettings(
        mode=mode,
        ordering_fields=ordering,
        partial_update=_partial_update(properties),
        unavailable_value=properties.values.get(keys.UNAVAILABLE_VALUE),
        delete_marker=_stored_marker(properties),
    )


def payload_settings(payload_class: str) -> MergeSettings:
    """Return the settings that a new table of version 9 stores instead of a payload.

    Source: ``HoodieTableConfig.inferMergingConfigsForV9TableCreation``.

    Args:
        payload_class: Java class of the payload, one of ``PAYLOAD_CLASSES``.
    """
    if payload_class in _MODES:
        return MergeSettings(mode=_MODES[payload_class])
    return _PAYLOADS[Payload(payload_class)]


def has_rules(payload_class: str | None) -> bool:
    """Return whether a payload class has rules beyond those of a merge mode; False for None."""
    return payload_class is not None and payload_class not in _MODES


def payload_of_mode(mode: MergeMode) -> str | None:
    """Return the payload class that is equivalent to a mode; None for ``CUSTOM``."""
    return next((name for name, meant in _MODES.items() if meant is mode), None)


def strategy_of_mode(mode: MergeMode) -> str | None:
    """Return the strategy id that is equivalent to a mode; None for ``CUSTOM``."""
    return next((uuid for uuid, meant in _STRATEGIES.items() if meant is mode), None)


def stored_payload(properties: TableProperties) -> str | None:
    """Return the payload class with which a table was created; None if there is none.

    Other properties may have replaced the payload class since.
    """
    return _payload_class(properties) or properties.values.get(keys.LEGACY_PAYLOAD_CLASS) or None


_MODELS = "org.apache.hudi.common.model."

#: Payloads that are equivalent to a merge mode.
_MODES = {
    f"{_MODELS}DefaultHoodieRecordPayload": MergeMode.EVENT_TIME,
    f"{_MODELS}EventTimeAvroPayload": MergeMode.EVENT_TIME,
    f"{_MODELS}OverwriteWithLatestAvroPayload": MergeMode.COMMIT_TIME,
}

#: The Java classes of the supported payloads.
PAYLOAD_CLASSES = (*_MODES, *(payload.value for payload in Payload))

#: Column that orders the changes of MySQL in tables before version 9. It contains the log file and
#: the position in one text.
MYSQL_SEQUENCE = "_event_seq"

_DEBEZIUM_MARKER = DeleteMarker("_change_operation_type", "d")

_PAYLOADS: Mapping[Payload, MergeSettings] = {
    Payload.OVERWRITE_NON_DEFAULTS: MergeSettings(
        mode=MergeMode.COMMIT_TIME, partial_update=PartialUpdateMode.IGNORE_DEFAULTS
    ),
    Payload.PARTIAL_UPDATE: MergeSettings(
        mode=MergeMode.EVENT_TIME, partial_update=PartialUpdateMode.IGNORE_DEFAULTS
    ),
    Payload.MYSQL_DEBEZIUM: MergeSettings(
        mode=MergeMode.EVENT_TIME,
        ordering_fields=("_event_bin_file", "_event_pos"),
        delete_marker=_DEBEZIUM_MARKER,
    ),
    Payload.POSTGRES_DEBEZIUM: MergeSettings(
        mode=MergeMode.EVENT_TIME,
        ordering_fields=("_event_lsn",),
        partial_update=PartialUpdateMode.FILL_UNAVAILABLE,
        unavailable_value="__debezium_unavailable_value",
        delete_marker=_DEBEZIUM_MARKER,
    ),
    Payload.AWS_DMS: MergeSettings(
        mode=MergeMode.COMMIT_TIME, delete_marker=DeleteMarker("Op", "D")
    ),
}

_STRATEGIES = {
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": MergeMode.EVENT_TIME,
    "ce9acb64-bde0-424c-9b91-f6ebba25356d": MergeMode.COMMIT_TIME,
}
#: The ids of the merge strategies that are equivalent to a mode.
MODE_STRATEGIES = tuple(_STRATEGIES)

#: The merge strategy id of a table whose payload class decides how records are merged.
PAYLOAD_STRATEGY = "00000000-0000-0000-0000-000000000000"


def _mode(properties: TableProperties) -> MergeMode:
    """Return the stored mode; in version 6 the mode follows from the payload or the strategy."""
    payload, strategy = _payload_class(properties), _strategy(properties)
    if properties.version < 8 and payload:
        return _MODES.get(payload, MergeMode.CUSTOM)
    if properties.version < 8 and strategy:
        return _STRATEGIES.get(strategy, MergeMode.CUSTOM)
    mode = properties.merge_mode
    return _STRATEGIES.get(strategy or "", mode) if mode is MergeMode.CUSTOM else mode


def _of_custom(properties: TableProperties) -> MergeSettings:
    strategy, payload = _strategy(properties), _payload_class(properties)
    if strategy not in (None, PAYLOAD_STRATEGY):
        return MergeSettings(
            mode=MergeMode.CUSTOM,
            ordering_fields=properties.ordering_fields,
            delete_marker=_stored_marker(properties),
            strategy_id=strategy,
        )
    if not payload:
        message = (
            f"table {properties.table_name} has merge mode {MergeMode.CUSTOM}, but neither a merge "
            f"strategy nor a payload class; set {keys.MERGE_STRATEGY_ID}"
        )
        raise Unsupported(message)
    return _of_payload(properties, payload)


def _of_payload(properties: TableProperties, name: str) -> MergeSettings:
    if name in _MODES:
        ordering = properties.ordering_fields
        mode = _MODES[name] if ordering else MergeMode.COMMIT_TIME
        return MergeSettings(
            mode=mode, ordering_fields=ordering, delete_marker=_stored_marker(properties)
        )
    if name not in PAYLOAD_CLASSES:
        known = ", ".join(PAYLOAD_CLASSES)
        message = (
            f"table {properties.table_name} merges with payload {name}, but only {known} are "
            "supported; merge it with Apache Hudi"
        )
        raise Unsupported(message)
    settings = _PAYLOADS[Payload(name)]
    return MergeSettings(
        mode=settings.mode,
        ordering_fields=settings.ordering_fields or properties.ordering_fields,
        partial_update=settings.partial_update,
        unavailable_value=settings.unavailable_value,
        payload=Payload(name),
        delete_marker=settings.delete_marker or _stored_marker(properties),
    )


def _partial_update(properties: TableProperties) -> PartialUpdateMode | None:
    word = properties.values.get(keys.PARTIAL_UPDATE_MODE, "").strip()
    if not word or word == "NONE":
        return None
    try:
        return PartialUpdateMode(word)
    except ValueError:
        known = ", ".join(PartialUpdateMode)
        message = (
            f"table {properties.table_name} has partial update mode {word}, but only {known} are "
            "supported; merge it with Apache Hudi"
        )
        raise Unsupported(message) from None


def _stored_marker(properties: TableProperties) -> DeleteMarker | None:
    field = properties.values.get(keys.DELETE_FIELD)
    text = properties.values.get(keys.DELETE_MARKER)
    return DeleteMarker(field, text) if field and text else None


def _payload_class(properties: TableProperties) -> str | None:
    return properties.values.get(keys.PAYLOAD_CLASS) or None


def _strategy(properties: TableProperties) -> str | None:
    values = properties.values
    return values.get(keys.MERGE_STRATEGY_ID) or values.get(keys.OLD_MERGE_STRATEGY_ID) or None
