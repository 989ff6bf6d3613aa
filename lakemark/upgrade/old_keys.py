"""Finds properties about keys and partition paths that tables before version 6 do not store.

Tables of version 2 may lack the key generator, and lack whether partition folders are named
``field=value`` and whether special characters are written ``%XX``. Apache Hudi's upgrade takes
these properties from the configuration of the writer. lakemark instead compares rows with their
record keys and partition paths.

Before version 5, rows without a partition value are in the folder ``default``. From then on, Hudi
writes such rows to another folder, so an updated row would exist twice. Source:
``TwoToThreeUpgradeHandler`` and ``FourToFiveUpgradeHandler`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config import keys
from lakemark.config.key_generators import KeyGeneratorType, class_of_type, find_implemented
from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig, Refused
from lakemark.index.stored_rows import StoredRows
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.keygen.key_value import key_value
from lakemark.keygen.partition_path import OLD_DEFAULT_PARTITION, folder_name
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY

#: A special character in a URL-encoded path.
_ENCODED = re.compile("%[0-9A-Fa-f]{2}")

#: A value of a partition field, and the partition path of its row.
_Placed = tuple[str, str]


def missing_key_properties(
    properties: TableProperties,
    sample: Sequence[StoredRows],
    partition_paths: Collection[str],
    place: str,
) -> dict[str, str]:
    """Return the properties about keys and paths that a table does not store.

    Args:
        properties: properties of a table before version 6.
        sample: rows of the table; if there are none, the properties are Apache Hudi's defaults.
        partition_paths: all partitions of the table.
        place: URL of the table, for error messages.

    Raises:
        Refused: the rows follow no key generator and no path style that lakemark knows.
    """
    if properties.version >= FormatVersion.V3:
        return {}
    style = _path_style(properties, sample, partition_paths, place)
    found = {**style, **_generator(properties, sample, place)}
    return {key: value for key, value in found.items() if key not in properties.values}


def check_default_partition(
    properties: TableProperties, partitions: Iterable[tuple[str, pa.Table]], place: str
) -> None:
    """Check that no row is in the folder ``default`` because it has no partition value.

    Args:
        properties: properties of the table.
        partitions: the path of each partition for which ``has_default_folder`` is true, and the
            partition columns of its rows.
        place: URL of the table, for the error message.

    Raises:
        Refused: there is such a row.
    """
    for path, rows in partitions:
        for name in properties.partition_fields:
            values = key_value(rows, name)
            if pc.any(pc.or_kleene(values.is_null(), pc.equal(values, ""))).as_py():
                message = (
                    f"partition {path!r} of table {place} has rows without a value of {name!r}; "
                    f"from table version 5 on, Hudi writes such rows to another folder, so each "
                    "update would become a second row; rewrite these rows with the Hudi that wrote "
                    "them, so that they have a value, then upgrade the table"
                )
                raise Refused(message)


def has_default_folder(partition_path: str) -> bool:
    """Return whether a folder of the path is that of rows without a value before version 5."""
    folders = partition_path.split("/")
    return any(folder.rpartition("=")[2] == OLD_DEFAULT_PARTITION for folder in folders)


def _path_style(
    properties: TableProperties,
    sample: Sequence[StoredRows],
    partition_paths: Collection[str],
    place: str,
) -> dict[str, str]:
    """Return whether paths are Hive-style and URL-encoded; plain if no path shows it."""
    names = _plain_fields(properties)
    fitting = [
        (hive_style, url_encode)
        for hive_style, url_encode in product((False, True), repeat=2)
        if all(
            f"/{folder_name(value, f'{name}=' if hive_style else '', url_encode)}/" in f"/{path}/"
            for name in names
            for value, path in _values_and_paths(name, sample)
        )
    ]
    # If values of the sample fit both ways, another partition may still be encoded.
    encoded = next((path for path in partition_paths if _ENCODED.search(path)), None)
    is_certain = not names or not encoded or {encode for _, encode in fitting} != {False, True}
    if fitting and is_certain:
        hive_style, url_encode = fitting[0]
        return {
            keys.HIVE_STYLE_PARTITIONING: str(hive_style).lower(),
            keys.URL_ENCODE_PARTITIONING: str(url_encode).lower(),
        }
    fields = ", ".join(properties.partition_fields)
    problem = f"the partition paths of table {place} are not the values of its fields {fields}"
    if fitting:
        problem = f"partition path {encoded!r} of table {place} may be URL-encoded or plain"
    message = (
        f"{problem}, and the table does not store how its paths were made; store "
        f"{keys.KEY_GENERATOR_CLASS}, {keys.HIVE_STYLE_PARTITIONING} and "
        f"{keys.URL_ENCODE_PARTITIONING} in .hoodie/hoodie.properties, or let Apache Hudi upgrade "
        "the table"
    )
    raise Refused(message)


def _plain_fields(properties: TableProperties) -> tuple[str, ...]:
    """Return the partition fields whose values are the names of folders."""
    stored = {keys.HIVE_STYLE_PARTITIONING, keys.URL_ENCODE_PARTITIONING} - properties.values.keys()
    formats = (KeyGeneratorType.TIMESTAMP, KeyGeneratorType.CUSTOM, None)
    is_plain = find_implemented(properties.key_generator) not in formats
    return properties.partition_fields if stored and is_plain else ()


def _values_and_paths(name: str, sample: Iterable[StoredRows]) -> Iterator[_Placed]:
    """Yield the distinct values of a field that are not empty, with the paths of their rows."""
    for stored in sample:
        values = key_value(stored.rows, name).to_pylist()
        paths = stored.rows[PARTITION_PATH].to_pylist()
        yield from {(v, path) for v, path in zip(values, paths, strict=True) if v}


def _generator(
    properties: TableProperties, sample: Sequence[StoredRows], place: str
) -> dict[str, str]:
    """Return the class of the key generator, which the rows' record keys show."""
    if {keys.KEY_GENERATOR_CLASS, keys.KEY_GENERATOR_TYPE} & properties.values.keys():
        return {}
    for kind in (find_implemented(properties.key_generator), KeyGeneratorType.COMPLEX):
        config = replace(KeyGeneratorConfig.of(properties, place), kind=kind)
        if all(_has_keys_of(KeyGenerator(config), stored) for stored in sample):
            return {keys.KEY_GENERATOR_CLASS: class_of_type(str(kind)) or ""}
    message = (
        f"the record keys of table {place} are not the values of its key fields "
        f"{', '.join(properties.record_key_fields)}, and the table does not store its key "
        f"generator; store {keys.KEY_GENERATOR_CLASS} in .hoodie/hoodie.properties, or let Apache "
        "Hudi upgrade it"
    )
    raise Refused(message)


def _has_keys_of(generator: KeyGenerator, stored: StoredRows) -> bool:
    try:
        made = generator.record_keys(stored.rows)
    except InvalidConfig:
        return False  # a value of this type cannot be a key
    same = pc.equal(stored.rows[RECORD_KEY], made)
    return bool(pc.all(pc.fill_null(same, fill_value=False)).as_py())
