"""What a table's properties become in another version.

Records merge as before; the properties describe it in the terms of the new version. Source:
``SevenToEightUpgradeHandler``, ``EightToNineUpgradeHandler``, ``NineToEightDowngradeHandler`` and
``EightToSevenDowngradeHandler`` of Apache Hudi 1.2.0, with these differences:

- A table whose rows would merge otherwise afterwards is refused.
- ``OverwriteWithLatestAvroPayload`` of version 6 keeps commit time, also with a precombine field.
- The payload class of a mode is stored in versions 6 and 8, also if the table had none: releases
  before 1.0 know no mode, and take a table without payload class for one of commit time.
- The delete marker of a payload is removed with the other properties that its class replaces.
- Only the name of the merge strategy that the version has is stored, not its alternative, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakemark.config import keys
from lakemark.config.merge_request import merge_properties
from lakemark.config.merge_settings import (
    MYSQL_SEQUENCE,
    MergeSettings,
    Payload,
    has_rules,
    merge_settings,
    stored_payload,
    strategy_of_mode,
)
from lakemark.config.table_properties import (
    MergeMode,
    TableProperties,
    layout_properties,
    ordering_key,
)
from lakemark.model.format_version import FormatVersion

#: Keys that are written again in the new version; all others stay.
_VERSIONED = frozenset(
    {
        keys.TABLE_VERSION,
        keys.INITIAL_VERSION,
        keys.TIMELINE_LAYOUT_VERSION,
        keys.TIMELINE_PATH,
        keys.TIMELINE_HISTORY_PATH,
        keys.ARCHIVELOG_FOLDER,
        keys.TABLE_FORMAT,
        keys.ORDERING_FIELDS,
        keys.PRECOMBINE_FIELD,
        keys.MERGE_MODE,
        keys.MERGE_STRATEGY_ID,
        keys.OLD_MERGE_STRATEGY_ID,
        keys.PAYLOAD_CLASS,
        keys.LEGACY_PAYLOAD_CLASS,
        keys.PARTIAL_UPDATE_MODE,
        keys.UNAVAILABLE_VALUE,
        keys.DELETE_FIELD,
        keys.DELETE_MARKER,
        keys.KEY_GENERATOR_TYPE,
        keys.KEY_GENERATOR_CLASS,
        keys.PARTITION_FIELDS,
    }
)


def properties_of(
    properties: TableProperties,
    version: FormatVersion,
    partition_fields: Sequence[str] | None = None,
) -> TableProperties:
    """Return the properties of a table in a version; it has no metadata table then.

    Args:
        properties: of the table now.
        version: of the table to be.
        partition_fields: as ``field:TYPE``, for a table of the key generator ``CUSTOM`` that stores
            the fields alone; None keeps the stored fields.

    Raises:
        InvalidConfig: the version has no words for how the table merges.
        Unsupported: a payload that is not known here.
    """
    settings, payload = merge_settings(properties), stored_payload(properties)
    mode = settings.mode
    if version is FormatVersion.V8 and has_rules(payload):
        mode = MergeMode.CUSTOM
    if version is not FormatVersion.V9 and payload == Payload.MYSQL_DEBEZIUM:
        settings = replace(settings, ordering_fields=(MYSQL_SEQUENCE,))
    ordering = ",".join(settings.ordering_fields or properties.ordering_fields)
    bare = properties.without_metadata_table().values
    layout = layout_properties(version)
    if keys.INITIAL_VERSION in layout:
        layout[keys.INITIAL_VERSION] = bare.get(keys.INITIAL_VERSION, str(properties.version))
    return TableProperties(
        {
            **{key: text for key, text in bare.items() if key not in _VERSIONED},
            keys.TABLE_VERSION: str(int(version)),
            **layout,
            **({ordering_key(version): ordering} if ordering else {}),
            **({} if version is FormatVersion.V6 else {keys.MERGE_MODE: str(mode)}),
            **merge_properties(replace(settings, payload=None), payload, version),
            **_strategy_of_payload(properties, settings, version),
            **_key_generator(properties),
            **_partition_fields(properties, version, partition_fields),
        }
    )


def changed_properties(
    before: TableProperties, after: TableProperties
) -> list[tuple[str, str | None, str | None]]:
    """Return each key that changes, its value before, and after; None where there is none."""
    names = sorted((before.values.keys() | after.values.keys()) - {keys.TABLE_CHECKSUM})
    pairs = ((name, before.values.get(name), after.values.get(name)) for name in names)
    return [(name, old, new) for name, old, new in pairs if old != new]


def _strategy_of_payload(
    properties: TableProperties, settings: MergeSettings, version: FormatVersion
) -> dict[str, str]:
    """From 8 to 9 Apache Hudi replaces the strategy of a payload by that of its mode."""
    is_replaced = properties.version == FormatVersion.V8 and version is FormatVersion.V9
    strategy = strategy_of_mode(settings.mode) if is_replaced and settings.payload else None
    return {keys.MERGE_STRATEGY_ID: strategy} if strategy else {}


def _partition_fields(
    properties: TableProperties, version: FormatVersion, typed: Sequence[str] | None
) -> dict[str, str]:
    """The key generator ``CUSTOM`` stores types of fields from version 8 on, others never do."""
    stored = properties.values.get(keys.PARTITION_FIELDS)
    if stored is None:
        return {}
    if version is FormatVersion.V6:
        return {keys.PARTITION_FIELDS: ",".join(properties.partition_fields)}
    return {keys.PARTITION_FIELDS: ",".join(typed) if typed else stored}


def _key_generator(properties: TableProperties) -> dict[str, str]:
    """Word and class together, as Apache Hudi has them after each change of version."""
    if not {keys.KEY_GENERATOR_TYPE, keys.KEY_GENERATOR_CLASS} & properties.values.keys():
        return {}
    class_name = properties.key_generator_class
    named = {keys.KEY_GENERATOR_CLASS: class_name} if class_name else {}
    return {keys.KEY_GENERATOR_TYPE: properties.key_generator, **named}
