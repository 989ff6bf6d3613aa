"""How a table says that records of one key become one, over all its versions.

Version 9 says it in full: merge mode, partial update mode, delete marker. Before that a Java class
said it, the payload; what Apache Hudi 1.2.0 makes of the payloads that it ships is one line each of
``_PAYLOADS``. Where a version 9 table names one of them (``CUSTOM`` with a payload class), it means
the same. Source: ``HoodieTableConfig.inferMergingConfigsForPreV9Table``,
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
    """Which values of a record leave their column to another record; the value is the stored word.

    A null, or the column's default; or a text that says "unavailable".
    """

    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"


class Payload(StrEnum):
    """A payload with rules that no merge mode has; the value is the Java class."""

    OVERWRITE_NON_DEFAULTS = (
        "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload"
    )
    PARTIAL_UPDATE = "org.apache.hudi.common.model.PartialUpdateAvroPayload"
    MYSQL_DEBEZIUM = "org.apache.hudi.common.model.debezium.MySqlDebeziumAvroPayload"
    POSTGRES_DEBEZIUM = "org.apache.hudi.common.model.debezium.PostgresDebeziumAvroPayload"
    AWS_DMS = "org.apache.hudi.common.model.AWSDmsAvroPayload"


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """What decides between records of one key.

    Attributes:
        mode: which of two records wins.
        ordering_fields: what event time looks at.
        partial_update: which values of the winner are filled from the other record, if any.
        unavailable_value: the text that ``FILL_UNAVAILABLE`` fills.
        payload: rules besides the mode, of a payload that has some.
        delete_marker: marks deletes among data rows, besides Hudi's own columns.
        strategy_id: the UUID of a custom merger; None where a mode or a payload decides.
        merger_class: ``package.module:Class`` that merges by that strategy. It is not stored: only
            who was told it can merge.
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
    """The settings of a table.

    Raises:
        Unsupported: a payload or a partial update mode that is not known here.
    """
    ordering = properties.ordering_fields
    mode = _mode(properties)
    if mode is MergeMode.CUSTOM:
        return _of_custom(properties)
    if mode is MergeMode.EVENT_TIME and not ordering:
        # All values are the same one, and the later record wins a tie.
        mode = MergeMode.COMMIT_TIME
    return MergeSettings(
        mode,
        ordering,
        _partial_update(properties),
        properties.values.get(keys.UNAVAILABLE_VALUE),
        delete_marker=_stored_marker(properties),
    )


def payload_settings(payload_class: str) -> MergeSettings:
    """What a new table of version 9 says instead of naming a payload, all rules of which it has.

    Source: ``HoodieTableConfig.inferMergingConfigsForV9TableCreation``.

    Args:
        payload_class: the Java class; one of ``PAYLOAD_CLASSES``.
    """
    if payload_class in _MODES:
        return MergeSettings(_MODES[payload_class])
    return _PAYLOADS[Payload(payload_class)]


def has_rules(payload_class: str | None) -> bool:
    """Whether there is a payload, and it says more than a merge mode."""
    return payload_class is not None and payload_class not in _MODES


def payload_of_mode(mode: MergeMode) -> str | None:
    """The payload that says no more than a mode; None for ``CUSTOM``."""
    return next((name for name, meant in _MODES.items() if meant is mode), None)


def strategy_of_mode(mode: MergeMode) -> str | None:
    """The strategy id that means a mode; None for ``CUSTOM``."""
    return next((uuid for uuid, meant in _STRATEGIES.items() if meant is mode), None)


def stored_payload(properties: TableProperties) -> str | None:
    """The payload class that a table was asked to merge with, whether it still does or not."""
    return _payload_class(properties) or properties.values.get(keys.LEGACY_PAYLOAD_CLASS) or None


_MODELS = "org.apache.hudi.common.model."

#: Payloads that say no more than a merge mode.
_MODES = {
    f"{_MODELS}DefaultHoodieRecordPayload": MergeMode.EVENT_TIME,
    f"{_MODELS}EventTimeAvroPayload": MergeMode.EVENT_TIME,
    f"{_MODELS}OverwriteWithLatestAvroPayload": MergeMode.COMMIT_TIME,
}

#: The Java classes of the payloads that are known here.
PAYLOAD_CLASSES = (*_MODES, *(payload.value for payload in Payload))

#: Orders the changes of MySQL before version 9: log file and position in one text.
MYSQL_SEQUENCE = "_event_seq"

_DEBEZIUM_MARKER = DeleteMarker("_change_operation_type", "d")

_PAYLOADS: Mapping[Payload, MergeSettings] = {
    Payload.OVERWRITE_NON_DEFAULTS: MergeSettings(
        MergeMode.COMMIT_TIME, partial_update=PartialUpdateMode.IGNORE_DEFAULTS
    ),
    Payload.PARTIAL_UPDATE: MergeSettings(
        MergeMode.EVENT_TIME, partial_update=PartialUpdateMode.IGNORE_DEFAULTS
    ),
    Payload.MYSQL_DEBEZIUM: MergeSettings(
        MergeMode.EVENT_TIME, ("_event_bin_file", "_event_pos"), delete_marker=_DEBEZIUM_MARKER
    ),
    Payload.POSTGRES_DEBEZIUM: MergeSettings(
        MergeMode.EVENT_TIME,
        ("_event_lsn",),
        PartialUpdateMode.FILL_UNAVAILABLE,
        "__debezium_unavailable_value",
        delete_marker=_DEBEZIUM_MARKER,
    ),
    Payload.AWS_DMS: MergeSettings(MergeMode.COMMIT_TIME, delete_marker=DeleteMarker("Op", "D")),
}

_STRATEGIES = {
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": MergeMode.EVENT_TIME,
    "ce9acb64-bde0-424c-9b91-f6ebba25356d": MergeMode.COMMIT_TIME,
}
#: The strategies that mean a mode.
MODE_STRATEGIES = tuple(_STRATEGIES)

#: Says that the payload class decides.
PAYLOAD_STRATEGY = "00000000-0000-0000-0000-000000000000"


def _mode(properties: TableProperties) -> MergeMode:
    """The stored mode; version 6 has none, its payload or else its strategy stands for one."""
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
            MergeMode.CUSTOM,
            properties.ordering_fields,
            delete_marker=_stored_marker(properties),
            strategy_id=strategy,
        )
    if not payload:
        message = (
            f"table {properties.table_name} merges in mode {MergeMode.CUSTOM} and names neither a "
            f"merge strategy nor a payload class; set {keys.MERGE_STRATEGY_ID}"
        )
        raise Unsupported(message)
    return _of_payload(properties, payload)


def _of_payload(properties: TableProperties, name: str) -> MergeSettings:
    if name in _MODES:
        ordering = properties.ordering_fields
        mode = _MODES[name] if ordering else MergeMode.COMMIT_TIME
        return MergeSettings(mode, ordering, delete_marker=_stored_marker(properties))
    if name not in PAYLOAD_CLASSES:
        known = ", ".join(PAYLOAD_CLASSES)
        message = f"table {properties.table_name} merges with the payload {name}; known are {known}"
        raise Unsupported(message)
    settings = _PAYLOADS[Payload(name)]
    return MergeSettings(
        settings.mode,
        settings.ordering_fields or properties.ordering_fields,
        settings.partial_update,
        settings.unavailable_value,
        Payload(name),
        settings.delete_marker or _stored_marker(properties),
    )


def _partial_update(properties: TableProperties) -> PartialUpdateMode | None:
    word = properties.values.get(keys.PARTIAL_UPDATE_MODE, "").strip()
    if not word or word == "NONE":
        return None
    try:
        return PartialUpdateMode(word)
    except ValueError:
        known = ", ".join(PartialUpdateMode)
        message = f"table {properties.table_name}: partial update mode {word}; known are {known}"
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
