"""Definitions of the indexes of a table, in ``.hoodie/.index_defs/index.json``.

    {"indexDefinitions": {"<partition>": {"indexName", "indexType", "indexFunction",
                                          "sourceFields", "indexOptions", "version"}}}

Source: ``HoodieIndexMetadata``, ``HoodieIndexDefinition`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakemark.errors import CorruptData
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.format_version import FormatVersion
from lakemark.storage.storage import NotFound, Storage

DEFINITIONS_PATH = ".hoodie/.index_defs/index.json"

#: The newest version of column statistics.
VERSION = FormatVersion.V9.column_statistics


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """One index.

    Attributes:
        partition: its partition of the metadata table.
        kind: ``column_stats``, ``bloom_filters``, ``secondary_index``, ...
        function: of an expression index, its function, such as ``hour``.
        source_fields: the columns that it indexes.
        options: settings of the index, as written.
        version: of its format, ``V1`` or ``V2``.
    """

    partition: str
    kind: str = ""
    function: str = ""
    source_fields: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    version: str = "V1"

    @property
    def is_partitioned(self) -> bool:
        """Of a record index: whether a key is unique only within a partition of the data table."""
        return self.options.get("isPartitioned", "false").lower() == "true"


def parse_definitions(data: bytes, path: str = DEFINITIONS_PATH) -> dict[str, IndexDefinition]:
    """Parse the definitions, by partition.

    Raises:
        CorruptData: the file contains something else.
    """
    try:
        stored = json.loads(data)["indexDefinitions"]
        return {str(name): _definition(str(name), stored[name]) for name in stored}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise CorruptData(path, None, "index definitions in JSON", reason) from error


def read_definitions(storage: Storage) -> dict[str, IndexDefinition]:
    """Read the definitions of a table, by partition; empty for a table of older releases.

    Raises:
        CorruptData: as ``parse_definitions``.
    """
    try:
        return parse_definitions(storage.read(DEFINITIONS_PATH))
    except NotFound:
        return {}


def define_column_statistics(
    storage: Storage, columns: Sequence[str], version: str, check_lease: Callable[[], None]
) -> None:
    """Define the columns that have statistics; definitions of other indexes are kept.

    Readers of Apache Hudi skip files only by these columns.

    Args:
        storage: the data table's root.
        columns: names of all columns that have statistics.
        version: of the column statistics.
        check_lease: raises if another process may be changing the table. It is called right before
            the definitions are written, because they are replaced as a whole.
    """
    try:
        stored = json.loads(storage.read(DEFINITIONS_PATH))
    except NotFound:
        stored = {}
    name = PartitionKind.COLUMN_STATS.stored_name
    definition = {
        "indexName": name,
        "indexType": name,
        "indexFunction": name,
        "sourceFields": list(columns),
        "indexOptions": {},
        "version": version,
    }
    others = stored.get("indexDefinitions") or {}
    whole = {**stored, "indexDefinitions": {**others, name: definition}}
    check_lease()
    storage.put(DEFINITIONS_PATH, json.dumps(whole, indent=2).encode())


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
