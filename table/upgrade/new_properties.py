"""What a table's properties become in another version.

How records are merged stays what it is, said in the words of the new version. Source: the upgrade
and downgrade handlers of Apache Hudi 1.2.0, with two differences: a table whose rows would merge
otherwise afterwards is refused, and ``OverwriteWithLatestAvroPayload`` of version 6 goes on meaning
commit time, beside a precombine field, too.
"""

from __future__ import annotations

from dataclasses import replace

from table.config import keys
from table.config.merge_request import merge_properties
from table.config.merge_settings import has_rules, merge_settings, stored_payload
from table.config.table_properties import (
    MergeMode,
    TableProperties,
    layout_properties,
    ordering_key,
)
from table.model.format_version import FormatVersion

#: What is said anew; all else stays.
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
    }
)


def properties_of(properties: TableProperties, version: FormatVersion) -> TableProperties:
    """The properties of a table in a version; it has no metadata table then.

    Raises:
        InvalidConfig: the version has no words for how the table merges.
        Unsupported: a payload that is not known here.
    """
    settings, payload = merge_settings(properties), stored_payload(properties)
    mode = settings.mode
    if version is FormatVersion.V8 and has_rules(payload):
        mode = MergeMode.CUSTOM
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
            **_key_generator(properties),
        }
    )


def changed_properties(
    before: TableProperties, after: TableProperties
) -> list[tuple[str, str | None, str | None]]:
    """Each key that changes, its value before, and after; None where there is none."""
    names = sorted((before.values.keys() | after.values.keys()) - {keys.TABLE_CHECKSUM})
    pairs = ((name, before.values.get(name), after.values.get(name)) for name in names)
    return [(name, old, new) for name, old, new in pairs if old != new]


def _key_generator(properties: TableProperties) -> dict[str, str]:
    """Word and class together, as Apache Hudi has them after each change of version."""
    if not {keys.KEY_GENERATOR_TYPE, keys.KEY_GENERATOR_CLASS} & properties.values.keys():
        return {}
    class_name = properties.key_generator_class
    named = {keys.KEY_GENERATOR_CLASS: class_name} if class_name else {}
    return {keys.KEY_GENERATOR_TYPE: properties.key_generator, **named}
