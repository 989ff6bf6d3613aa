"""Predicates on a property's value, by which rules refuse a table.

Each is called with the properties of the table and the value, which is "" if the table lacks it.
"""

from __future__ import annotations

from collections.abc import Callable

from lakemark.config import keys
from lakemark.config.key_generators import find_implemented, type_of_class
from lakemark.config.merge_settings import PartialUpdateMode, merge_settings
from lakemark.config.table_properties import MergeMode, TableProperties
from lakemark.errors import Unsupported
from lakemark.model.format_version import FormatVersion

#: Partitions of the metadata table that are written here.
MAINTAINED = ("files", "column_stats", "partition_stats")
_SLASH_EXTRACTORS = (
    "SlashEncodedDayPartitionValueExtractor",
    "SlashEncodedHourPartitionValueExtractor",
)


def is_true(properties: TableProperties, value: str) -> bool:
    """Return whether it is ``true``."""
    return value.lower() == "true"


def lacks_meta_columns(properties: TableProperties, value: str) -> bool:
    """Return whether the rows lack Hudi's meta columns."""
    return not properties.populates_meta_columns


def is_set(properties: TableProperties, value: str) -> bool:
    """Return whether it has a value."""
    return bool(value.strip())


def is_none_of(*accepted: str) -> Callable[[TableProperties, str], bool]:
    """Return a predicate for values that are set and not accepted."""
    return lambda properties, value: value.strip() not in ("", *accepted)


def is_unknown_version(properties: TableProperties, value: str) -> bool:
    """Return whether the table version is unknown."""
    return not properties.has_known_version


def is_another_layout(properties: TableProperties, value: str) -> bool:
    """Return whether the timeline layout is not the one of the table version."""
    if is_unknown_version(properties, value) or not value.strip():
        return False
    return value.strip() != str(FormatVersion(properties.version).timeline_layout)


def drops_unreadable_columns(properties: TableProperties, value: str) -> bool:
    """Return whether partition columns that the files lack cannot be read from the paths."""
    is_read = properties.folders_are_values and not properties.is_merge_on_read
    return properties.drops_partition_columns and not is_read


def is_cdc_of_copy_on_write(properties: TableProperties, value: str) -> bool:
    """Return whether a copy-on-write table stores change data."""
    return properties.cdc_enabled and not properties.is_merge_on_read


def is_unknown_logging_mode(properties: TableProperties, value: str) -> bool:
    """Return whether the content of ``.cdc`` files is unknown."""
    return properties.cdc_enabled and properties.cdc_logging_mode is None


def names_unmaintained(properties: TableProperties, value: str) -> bool:
    """Return whether the metadata table has partitions that are not updated here."""
    return any(name not in MAINTAINED for name in properties.metadata_partitions)


def is_unknown_generator(properties: TableProperties, value: str) -> bool:
    """Return whether the key generator's type is not implemented."""
    return is_set(properties, value) and find_implemented(value.strip()) is None


def is_unknown_generator_class(properties: TableProperties, value: str) -> bool:
    """Return whether the key generator's class is not implemented."""
    return is_set(properties, value) and find_implemented(type_of_class(value.strip())) is None


def extracts_slashes(properties: TableProperties, value: str) -> bool:
    """Return whether the partition extractor is one of slash-separated dates."""
    return value.strip().rpartition(".")[2] in _SLASH_EXTRACTORS


def _merges_unknown(properties: TableProperties) -> bool:
    try:
        merge_settings(properties)
    except Unsupported:
        return True
    return False


is_unknown_partial_update = is_none_of("NONE", *PartialUpdateMode)


def is_unknown_payload(properties: TableProperties, value: str) -> bool:
    """Whether the payload class, and not the partial update mode, makes the merge rules unknown."""
    partial_update = properties.values.get(keys.PARTIAL_UPDATE_MODE, "")
    is_its_fault = not is_unknown_partial_update(properties, partial_update)
    return is_set(properties, value) and is_its_fault and _merges_unknown(properties)


def is_custom_without_rules(properties: TableProperties, value: str) -> bool:
    """Return whether merging is custom, and neither strategy nor payload is known."""
    is_payload = bool(properties.values.get(keys.PAYLOAD_CLASS))
    return value == MergeMode.CUSTOM and not is_payload and _merges_unknown(properties)
