"""Predicates that decide whether a rule refuses a table because of a property's value.

Each predicate is called with the properties of the table and the value of one property. The value
is "" if the table does not have the property.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakemark.config import keys
from lakemark.config.key_generators import KeyGeneratorType, find_implemented, type_of_class
from lakemark.config.merge_settings import PartialUpdateMode, merge_settings
from lakemark.config.table_properties import MAINTAINED_INDEXES, MergeMode, TableProperties
from lakemark.config.time_folders import PARSER_CLASS
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.model.format_version import FormatVersion

#: Partitions of the metadata table that lakemark updates.
MAINTAINED = ("files", "column_stats", "partition_stats", *MAINTAINED_INDEXES)
_SLASH_EXTRACTORS = (
    "SlashEncodedDayPartitionValueExtractor",
    "SlashEncodedHourPartitionValueExtractor",
)


def is_true(properties: TableProperties, value: str) -> bool:
    """Return whether the value is ``true``."""
    return value.lower() == "true"


def has_unwritable_virtual_keys(properties: TableProperties, value: str) -> bool:
    """Return whether rows store no key, and Apache Hudi 1.2.0 reads such a table wrongly.

    Its writers accept only three key generators then (``HoodieTableMetaClient``). With ``COMPLEX``
    and one field, its readers compute the bare value, whereas its writers name the field in the
    key. So its own deletes have no effect, and an update of a copy-on-write table adds a row. If a
    partition column is in the key, its readers fail on its own logs: "Field: region does not exist
    in the table schema".
    """
    if properties.populates_meta_columns:
        return False
    fields, kind = properties.record_key_fields, find_implemented(properties.key_generator)
    if kind is KeyGeneratorType.COMPLEX:
        is_misread = len(fields) == 1
    else:
        is_misread = kind not in (KeyGeneratorType.SIMPLE, KeyGeneratorType.NON_PARTITION)
    names_partition = not {*fields}.isdisjoint(properties.partition_fields)
    return is_misread or (properties.is_merge_on_read and names_partition)


def has_cdc_without_meta_columns(properties: TableProperties, value: str) -> bool:
    """Return whether the table stores change data of rows without meta columns."""
    return properties.cdc_enabled and not properties.populates_meta_columns


def has_bloom_filters_without_meta_columns(properties: TableProperties, value: str) -> bool:
    """Return whether the metadata table has bloom filters of files without filters."""
    indexed = "bloom_filters" in properties.metadata_partitions
    return indexed and not properties.populates_meta_columns


def is_set(properties: TableProperties, value: str) -> bool:
    """Return whether the property has a value."""
    return bool(value.strip())


def is_none_of(*accepted: str) -> Callable[[TableProperties, str], bool]:
    """Return a predicate that is true for a value that is set but is not one of ``accepted``."""
    return lambda properties, value: value.strip() not in ("", *accepted)


def has_unknown_expressions(properties: TableProperties, value: str) -> bool:
    """Return whether the property names expressions that lakemark cannot evaluate."""
    try:
        properties.parse_partition_expressions()
    except InvalidConfig:
        return True
    return False


def is_unknown_version(properties: TableProperties, value: str) -> bool:
    """Return whether the table version is unknown."""
    return not properties.has_known_version


def is_only_read(properties: TableProperties, value: str) -> bool:
    """Return whether lakemark reads tables of this version, but does not write them."""
    return properties.has_known_version and not FormatVersion(properties.version).is_written


def is_another_layout(properties: TableProperties, value: str) -> bool:
    """Return whether the timeline layout is not the one of the table version."""
    if is_unknown_version(properties, value) or not value.strip():
        return False
    return value.strip() != str(FormatVersion(properties.version).timeline_layout)


def drops_unreadable_columns(properties: TableProperties, value: str) -> bool:
    """Return whether files lack partition columns that lakemark cannot read from the paths."""
    is_read = properties.folders_are_values and not properties.is_merge_on_read
    return properties.drops_partition_columns and not is_read


def is_unknown_logging_mode(properties: TableProperties, value: str) -> bool:
    """Return whether the table stores change data in an unknown logging mode."""
    return properties.cdc_enabled and properties.cdc_logging_mode is None


def names_unmaintained(properties: TableProperties, value: str) -> bool:
    """Return whether the metadata table has partitions that lakemark does not update."""
    updated = {*MAINTAINED, *properties.metadata_indexes}
    return any(name not in updated for name in properties.metadata_partitions)


def is_unknown_generator(properties: TableProperties, value: str) -> bool:
    """Return whether lakemark does not implement the key generator's type."""
    return is_set(properties, value) and find_implemented(value.strip()) is None


def is_unknown_generator_class(properties: TableProperties, value: str) -> bool:
    """Return whether lakemark does not implement the key generator's class."""
    return is_set(properties, value) and find_implemented(type_of_class(value.strip())) is None


def has_unwritable_time(
    parse: Callable[[Mapping[str, str]], object],
) -> Callable[[TableProperties, str], bool]:
    """Return a predicate: whether the table formats times, and a part of the format is refused.

    Args:
        parse: parses the part from the properties of a table, or raises InvalidConfig.
    """

    def applies(properties: TableProperties, value: str) -> bool:
        if not properties.formats_times:
            return False
        try:
            parse(properties.values)
        except InvalidConfig:
            return True
        return False

    return applies


def has_other_parser(properties: TableProperties, value: str) -> bool:
    """Return whether the table formats times with a class of a user."""
    return properties.formats_times and value not in ("", PARSER_CLASS)


def formats_with_old_options(properties: TableProperties, value: str) -> bool:
    """Return whether the table formats times, and stores options that only old releases know."""
    return properties.formats_times


def lacks_partition_types(properties: TableProperties, value: str) -> bool:
    """Return whether the properties do not show which partition fields are formatted times."""
    return properties.lacks_partition_types


def has_unwritable_dates(properties: TableProperties, value: str) -> bool:
    """Return whether the key generators of Apache Hudi 1.2.0 separate dates in different ways.

    They agree only if there is one partition field, and folders have no names: with others, the
    key generator of an upsert and that of a bulk insert create different folders for one value.
    """
    return properties.slash_separated_dates and not properties.folders_are_values


def extracts_unstored_slashes(properties: TableProperties, value: str) -> bool:
    """Return whether only the partition extractor shows that dates are slash-separated."""
    extracts = value.strip().rpartition(".")[2] in _SLASH_EXTRACTORS
    return extracts and not properties.slash_separated_dates


def _merges_unknown(properties: TableProperties) -> bool:
    try:
        merge_settings(properties)
    except Unsupported:
        return True
    return False


is_unknown_partial_update = is_none_of("NONE", *PartialUpdateMode)


def is_unknown_payload(properties: TableProperties, value: str) -> bool:
    """Return whether the payload class makes the merge rules unknown.

    If the partial update mode is unknown too, only that mode is reported.
    """
    partial_update = properties.values.get(keys.PARTIAL_UPDATE_MODE, "")
    is_its_fault = not is_unknown_partial_update(properties, partial_update)
    return is_set(properties, value) and is_its_fault and _merges_unknown(properties)


def is_custom_without_rules(properties: TableProperties, value: str) -> bool:
    """Return whether the merge mode is custom, but the table names no strategy and no payload."""
    is_payload = bool(properties.values.get(keys.PAYLOAD_CLASS))
    return value == MergeMode.CUSTOM and not is_payload and _merges_unknown(properties)
