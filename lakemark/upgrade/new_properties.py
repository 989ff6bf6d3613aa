"""Converts a table's properties to those of another version.

Records are merged in the same way before and after the change; only the properties that describe
the merging differ. An upgrade from a version before 6 keeps all properties, and adds those that
earlier versions do not store. Source: the handlers from ``TwoToThreeUpgradeHandler`` to
``EightToNineUpgradeHandler``, ``NineToEightDowngradeHandler`` and ``EightToSevenDowngradeHandler``
of Apache Hudi 1.2.0, with these differences:

- If the new version cannot merge records in the same way, the change is refused.
- A table of version 6 with ``OverwriteWithLatestAvroPayload`` keeps commit-time ordering, even if
  it has a precombine field.
- In versions 6 and 8, the payload class that corresponds to the merge mode is always stored.
  Releases before 1.0 ignore merge modes, and treat a table without a payload class as ordered by
  commit time.
- If a payload class implies a delete marker, the marker's properties are removed when the class is
  stored.
- The id of the merge strategy is stored only under the new version's property name, but Apache Hudi
  stores the id under both names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

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
from lakemark.config.new_table_properties import layout_properties, ordering_key
from lakemark.config.table_properties import (
    EXPRESSION_INDEX_PREFIX,
    SECONDARY_INDEX_PREFIX,
    MergeMode,
    TableProperties,
)
from lakemark.errors import InvalidConfig
from lakemark.model.format_version import FormatVersion

#: Properties that depend on the version and are written again. All other properties are kept.
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
    derived: Mapping[str, str] = MappingProxyType({}),
) -> TableProperties:
    """Return the properties of a table in a new version, without those of the metadata table.

    Args:
        properties: the current properties of the table.
        version: the new version of the table.
        derived: properties that the table does not store, but which its rows show.

    Raises:
        InvalidConfig: the new version has no settings that express how the table merges records; or
            the table must first be upgraded to version 6.
        Unsupported: the payload class is unknown.
    """
    if not FormatVersion(properties.version).is_written:
        return _upgraded_to_6(properties, version, derived)
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
            **_dropped_indexes(bare, version),
            **({ordering_key(version): ordering} if ordering else {}),
            **({} if version is FormatVersion.V6 else {keys.MERGE_MODE: str(mode)}),
            **merge_properties(replace(settings, payload=None), payload, version),
            **_strategy_of_payload(properties, settings, version),
            **_key_generator(properties),
            **_partition_fields(properties, version),
            **derived,
        }
    )


def _dropped_indexes(bare: Mapping[str, str], version: FormatVersion) -> dict[str, str]:
    """Return the property with the indexes of the next metadata table.

    Tables of version 6 have neither secondary nor expression indexes, as in Apache Hudi.
    """
    named = [name for name in bare.get(keys.DROPPED_INDEXES, "").split(",") if name]
    if not named or version is not FormatVersion.V6:
        return {}
    newer = (SECONDARY_INDEX_PREFIX, EXPRESSION_INDEX_PREFIX)
    kept = (name for name in named if not name.startswith(newer))
    return {keys.DROPPED_INDEXES: ",".join(kept)}


def _upgraded_to_6(
    properties: TableProperties, version: FormatVersion, derived: Mapping[str, str]
) -> TableProperties:
    """Return the properties of a table of a version before 6 in version 6.

    Raises:
        InvalidConfig: another version is wanted. As in Apache Hudi, the upgrade to 6 comes first.
    """
    if version is not FormatVersion.V6:
        message = (
            f"a table of version {properties.version} is first upgraded to version 6: lakemark "
            "table upgrade TABLE --to 6 --run"
        )
        raise InvalidConfig(message)
    layout = {keys.TIMELINE_LAYOUT_VERSION: "1"}
    stored = properties.values
    kept = properties.without_metadata_table().values if properties.names_metadata_table else stored
    return TableProperties({**layout, **kept, keys.TABLE_VERSION: "6", **derived})


def changed_properties(
    before: TableProperties, after: TableProperties
) -> list[tuple[str, str | None, str | None]]:
    """Return the changed properties as tuples of key, old value and new value.

    A value is None if the property does not exist.
    """
    names = sorted((before.values.keys() | after.values.keys()) - {keys.TABLE_CHECKSUM})
    pairs = ((name, before.values.get(name), after.values.get(name)) for name in names)
    return [(name, old, new) for name, old, new in pairs if old != new]


def _strategy_of_payload(
    properties: TableProperties, settings: MergeSettings, version: FormatVersion
) -> dict[str, str]:
    """Return the strategy id that replaces a payload's id in an upgrade from version 8 to 9.

    As in Apache Hudi, this is the id of the merge mode.
    """
    is_replaced = properties.version == FormatVersion.V8 and version is FormatVersion.V9
    strategy = strategy_of_mode(settings.mode) if is_replaced and settings.payload else None
    return {keys.MERGE_STRATEGY_ID: strategy} if strategy else {}


def _partition_fields(properties: TableProperties, version: FormatVersion) -> dict[str, str]:
    """Return the property with the partition fields.

    Only for key generator ``CUSTOM``, and only from version 8 on, it contains the fields' types.
    """
    stored = properties.values.get(keys.PARTITION_FIELDS)
    if stored is None:
        return {}
    if version is FormatVersion.V6:
        return {keys.PARTITION_FIELDS: ",".join(properties.partition_fields)}
    return {keys.PARTITION_FIELDS: stored}


def _key_generator(properties: TableProperties) -> dict[str, str]:
    """Return type and class of the key generator. Hudi stores both after a change of version."""
    if not {keys.KEY_GENERATOR_TYPE, keys.KEY_GENERATOR_CLASS} & properties.values.keys():
        return {}
    class_name = properties.key_generator_class
    named = {keys.KEY_GENERATOR_CLASS: class_name} if class_name else {}
    return {keys.KEY_GENERATOR_TYPE: properties.key_generator, **named}
