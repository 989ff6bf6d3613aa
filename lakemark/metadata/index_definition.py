"""Definitions of the indexes of a table, in ``.hoodie/.index_defs/index.json``.

    {"indexDefinitions": {"<partition>": {"indexName", "indexType", "indexFunction",
                                          "sourceFields", "indexOptions", "version"}}}

Source: ``HoodieIndexMetadata``, ``HoodieIndexDefinition`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakemark.errors import CorruptData
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.format_version import FormatVersion
from lakemark.storage.storage import NotFound, Storage

DEFINITIONS_PATH = ".hoodie/.index_defs/index.json"

#: The newest format version of column statistics.
VERSION = FormatVersion.V9.column_statistics

#: The only format version of record indexes.
_RECORD_INDEX_VERSION = "V1"


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """The definition of one index.

    Attributes:
        partition: partition of the metadata table that contains the index.
        kind: type of the index, such as ``column_stats``, ``bloom_filters`` or ``secondary_index``.
        function: function of the index, for example ``hour`` for an expression index.
        source_fields: names of the indexed columns.
        options: settings of the index, as stored.
        version: format version of the index, ``V1`` or ``V2``.
    """

    partition: str
    kind: str = ""
    function: str = ""
    source_fields: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    version: str = "V1"

    @property
    def is_partitioned(self) -> bool:
        """Whether keys of a record index are unique only within a partition of the data table."""
        return self.options.get("isPartitioned", "false").lower() == "true"


def parse_definitions(data: bytes, path: str = DEFINITIONS_PATH) -> dict[str, IndexDefinition]:
    """Return the index definitions in the content of a file, by partition of the metadata table.

    Raises:
        CorruptData: the content is not a set of index definitions in JSON.
    """
    try:
        stored = json.loads(data)["indexDefinitions"]
        return {str(name): _definition(str(name), stored[name]) for name in stored}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise CorruptData(path, None, "index definitions in JSON", reason) from error


def read_definitions(storage: Storage) -> dict[str, IndexDefinition]:
    """Return the index definitions of a table, by partition of the metadata table.

    The result is empty if an older release wrote the table without definitions.

    Raises:
        CorruptData: as for ``parse_definitions``.
    """
    try:
        return parse_definitions(storage.read(DEFINITIONS_PATH))
    except NotFound:
        return {}


def define_column_statistics(
    storage: Storage, columns: Sequence[str], version: str, check_lease: Callable[[], None]
) -> None:
    """Define which columns have statistics; definitions of other indexes are kept.

    Apache Hudi skips files only by filters on these columns.

    Args:
        storage: the data table's root.
        columns: names of all columns that have statistics.
        version: format version of the column statistics.
        check_lease: raises if another process may be changing the table. It is called right before
            the write, because the write replaces the definitions of all indexes.

    Raises:
        CorruptData: as for ``parse_definitions``.
    """
    name = PartitionKind.COLUMN_STATS.stored_name
    definition = {
        "indexName": name,
        "indexType": name,
        "indexFunction": name,
        "sourceFields": list(columns),
        "indexOptions": {},
        "version": version,
    }
    _define(storage, name, definition, check_lease)


def is_partitioned(definitions: Mapping[str, IndexDefinition]) -> bool:
    """Return whether the keys of the record index are unique only within a partition.

    Args:
        definitions: the index definitions of a table. A record index without a definition has keys
            of the whole table.
    """
    definition = definitions.get(PartitionKind.RECORD_INDEX.stored_name)
    return definition is not None and definition.is_partitioned


def define_record_index(
    storage: Storage, check_lease: Callable[[], None], *, partitioned: bool
) -> None:
    """Define the record index of a metadata table.

    Args:
        storage: the data table's root.
        check_lease: as for ``define_column_statistics``.
        partitioned: whether keys are unique only within a partition of the data table.
    """
    name = PartitionKind.RECORD_INDEX.stored_name
    definition = {
        "indexName": name,
        "indexType": name,
        "indexFunction": "",
        "sourceFields": [],
        "indexOptions": {"isPartitioned": str(partitioned).lower()},
        "version": _RECORD_INDEX_VERSION,
    }
    _define(storage, name, definition, check_lease)


def define_secondary_index(
    storage: Storage, partition: str, column: str, version: str, check_lease: Callable[[], None]
) -> None:
    """Define a secondary index.

    Args:
        storage: the data table's root.
        partition: the partition of the metadata table that contains the index.
        column: the indexed column.
        version: format version of the index, ``V1`` or ``V2``.
        check_lease: as for ``define_column_statistics``.
    """
    definition = {
        "indexName": partition,
        "indexType": PartitionKind.SECONDARY_INDEX.stored_name.removesuffix("_"),
        "indexFunction": "identity",
        "sourceFields": [column],
        "indexOptions": {},
        "version": version,
    }
    _define(storage, partition, definition, check_lease)


def define_expression_index(
    storage: Storage, definition: IndexDefinition, check_lease: Callable[[], None]
) -> None:
    """Define an expression index.

    Args:
        storage: the data table's root.
        definition: the definition.
        check_lease: as for ``define_column_statistics``.
    """
    stored = {
        "indexName": definition.partition,
        "indexType": definition.kind,
        "indexFunction": definition.function,
        "sourceFields": list(definition.source_fields),
        "indexOptions": dict(definition.options),
        "version": definition.version,
    }
    _define(storage, definition.partition, stored, check_lease)


def remove_definitions(
    storage: Storage, partitions: Iterable[str], check_lease: Callable[[], None]
) -> None:
    """Remove the definitions of indexes that no longer exist; other definitions are kept.

    Apache Hudi would read an index that has a definition.

    Args:
        storage: the data table's root.
        partitions: partitions of the metadata table. Those without a definition are ignored.
        check_lease: as for ``define_column_statistics``.
    """
    stored, gone = _read_stored(storage), set(partitions)
    known = stored["indexDefinitions"]
    left = {name: one for name, one in known.items() if name not in gone}
    if len(left) < len(known):
        check_lease()
        content = json.dumps({**stored, "indexDefinitions": left}, indent=2)
        storage.put(DEFINITIONS_PATH, content.encode())


def remove_stale_definitions(
    storage: Storage, check_lease: Callable[[], None], kept: Collection[str] = ()
) -> None:
    """Remove the definitions of indexes with names, which a crash may have left behind.

    Args:
        storage: the data table's root.
        check_lease: as for ``define_column_statistics``.
        kept: partitions whose definitions are kept.
    """
    named = [name for name in read_definitions(storage) if has_own_name(name)]
    stale = [name for name in named if name not in kept]
    if stale:
        remove_definitions(storage, stale, check_lease)


def has_own_name(partition: str) -> bool:
    """Return whether a partition is an index of which a table may have several."""
    kinds = (PartitionKind.SECONDARY_INDEX, PartitionKind.EXPRESSION_INDEX)
    return partition.startswith(tuple(kind.stored_name for kind in kinds))


def _define(
    storage: Storage,
    name: str,
    definition: Mapping[str, object],
    check_lease: Callable[[], None],
) -> None:
    """Store the definition of an index; definitions of other indexes are kept."""
    stored = _read_stored(storage)
    whole = {**stored, "indexDefinitions": {**stored["indexDefinitions"], name: definition}}
    check_lease()
    storage.put(DEFINITIONS_PATH, json.dumps(whole, indent=2).encode())


def _read_stored(storage: Storage) -> dict[str, Any]:
    """Return the content of the file, with fields that lakemark does not know.

    Raises:
        CorruptData: as for ``parse_definitions``.
    """
    try:
        content = storage.read(DEFINITIONS_PATH)
    except NotFound:
        return {"indexDefinitions": {}}
    parse_definitions(content)
    stored: dict[str, Any] = json.loads(content)
    return stored


def _definition(partition: str, stored: Mapping[str, Any]) -> IndexDefinition:
    options = {str(k): str(v) for k, v in (stored.get("indexOptions") or {}).items()}
    return IndexDefinition(
        partition,
        str(stored.get("indexType") or ""),
        str(stored.get("indexFunction") or ""),
        tuple(str(name) for name in stored.get("sourceFields") or ()),
        options,
        str(stored.get("version") or "V1"),
    )
