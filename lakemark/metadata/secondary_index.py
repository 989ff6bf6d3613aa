r"""Reads secondary indexes, which contain the record keys for each value of a column.

A key is ``<value>$<record key>``. In both parts each backslash, ``$`` and NUL is escaped with a
backslash. A null value is a single NUL. In version 1 of the index, the hash of the whole key
selects the shard of the key. In version 2, the hash of the escaped ``<value>$`` selects it.
``secondary_index_records`` creates the records. Source: ``SecondaryIndexKeyUtils``,
``SecondaryIndexPrefixRawKey``, ``getSecondaryKeyToFileGroupMappingFunction`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.hfile.selection import Prefixes
from lakemark.errors import CorruptData
from lakemark.metadata.metadata_table import MetadataTable, Part
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.shards import shard_series, shards_of
from lakemark.metadata.slice_rows import KEY, PAYLOAD
from lakemark.model.format_version import FormatVersion

RECORDS = pa.schema(
    [
        pa.field("secondary_key", pa.string()),
        pa.field("record_key", pa.string(), nullable=False),
    ]
)

_SEPARATOR, _NULL = "$", "\0"
_SPECIAL = re.compile(r"[\\$\0]")
_SPECIAL_IN_ARROW = r"[\\$\x00]"
_ESCAPING = r"\\\0"
#: The first separator that is not escaped divides the key.
_PARTS = r"(?s)^(?P<secondary>(?:[^\\$]|\\.)*)\$(?P<record>.*)$"
_ESCAPED = r"(?s)\\(.)"


@dataclass(frozen=True)
class SecondaryIndex:
    """Reads one partition ``secondary_index_<name>``.

    Attributes:
        metadata: the metadata table that contains the index.
        partition: name of the index's partition.
    """

    metadata: MetadataTable
    partition: str

    @property
    def column(self) -> str | None:
        """The indexed column; None if the table's index definitions do not name it."""
        definition = self.metadata.definitions.get(self.partition)
        return definition.source_fields[0] if definition and definition.source_fields else None

    def lookup(self, values: Iterable[str | None]) -> pa.Table:
        """Return the keys of the records that have one of the values, in no particular order.

        Args:
            values: column values, as Java's ``String.valueOf`` prints them; None finds nulls.

        Returns:
            A table with the schema ``RECORDS``.

        Raises:
            SnapshotChanged: the metadata table was compacted in the meantime; open it again.
            CorruptData: bytes of the metadata table, or a key, do not match the format.
        """
        prefixes = sorted({escape(value) + _SEPARATOR for value in values})
        return pa.concat_tables([RECORDS.empty_table(), *self._records(self._parts(prefixes))])

    def scan(self) -> Iterator[pa.Table]:
        """Yield all values and record keys, as ``RECORDS``; errors as for ``lookup``."""
        yield from self._records(self.metadata.parts(self.partition))

    def _parts(self, prefixes: list[str]) -> list[Part]:
        definition = self.metadata.definitions.get(self.partition)
        if definition is None or not hashes_values(definition.version):
            selection = Prefixes([prefix.encode() for prefix in prefixes])
            return self.metadata.parts(self.partition, selection)
        parts: list[Part] = []
        for series in shard_series(self.metadata.slices(self.partition)).values():
            wanted: dict[int, list[bytes]] = {}
            numbers = shards_of(pa.array(prefixes, pa.string()), len(series)).tolist()
            for number, prefix in zip(numbers, prefixes, strict=True):
                wanted.setdefault(number, []).append(prefix.encode())
            parts += [(series[number], Prefixes(chosen)) for number, chosen in wanted.items()]
        return parts

    def _records(self, parts: Iterable[Part]) -> Iterator[pa.Table]:
        for rows in self.metadata.newest(parts, PartitionKind.SECONDARY_INDEX.payload):
            is_deleted = pc.struct_field(rows.column(PAYLOAD).combine_chunks(), "isDeleted")
            live = rows.filter(pc.invert(is_deleted))
            if live.num_rows:
                yield _split(live.column(KEY).combine_chunks(), self.partition)


def hashes_values(version: str) -> bool:
    """Return whether only the value in a key selects the shard, not the whole key.

    Args:
        version: format version of the index.
    """
    return version != "V1"


def index_version(version: FormatVersion) -> str:
    """Return the format version of a new secondary index in a table of this version.

    Source: ``HoodieIndexVersion.getCurrentVersion`` of Apache Hudi 1.2.0.
    """
    return "V1" if version is FormatVersion.V8 else "V2"


def encode_keys(values: pa.Array, record_keys: pa.Array) -> pa.StringArray:
    """Return the key of each row.

    Args:
        values: the values of the indexed column, as strings.
        record_keys: the record keys, as strings without nulls.
    """
    escaped = pc.fill_null(_escape_all(values), _NULL)
    return pc.binary_join_element_wise(escaped, _escape_all(record_keys), _SEPARATOR)


def encoded_values(keys: pa.StringArray) -> pa.StringArray:
    """Return the encoded value in each key, with the separator; ``hashes_values`` needs it.

    Args:
        keys: keys that ``encode_keys`` returned.
    """
    parts = pc.extract_regex(keys, pattern=_PARTS)
    return pc.binary_join_element_wise(pc.struct_field(parts, "secondary"), _SEPARATOR, "")


def record_keys_in(keys: pa.StringArray, path: str) -> pa.ChunkedArray:
    """Return the record key in each key of an index.

    Args:
        keys: keys that ``encode_keys`` returned.
        path: path of the file, for errors.

    Raises:
        CorruptData: a key has no separator.
    """
    return _split(keys, path).column("record_key")


def _escape_all(values: pa.Array) -> pa.StringArray:
    return pc.replace_substring_regex(values, pattern=_SPECIAL_IN_ARROW, replacement=_ESCAPING)


def escape(value: str | None) -> str:
    """Escape a value for a key."""
    return _NULL if value is None else _SPECIAL.sub(r"\\\g<0>", value)


def _split(keys: pa.StringArray, path: str) -> pa.Table:
    parts = pc.extract_regex(keys, pattern=_PARTS)
    if parts.null_count:
        wrong = keys.filter(parts.is_null())[0].as_py()
        raise CorruptData(path, None, f"a key with a {_SEPARATOR!r}", repr(wrong)[:80])
    columns = [_unescape(pc.struct_field(parts, name)) for name in ("secondary", "record")]
    return pa.Table.from_arrays(columns, schema=RECORDS)


def _unescape(values: pa.StringArray) -> pa.StringArray:
    plain = pc.replace_substring_regex(values, pattern=_ESCAPED, replacement=r"\1")
    return pc.if_else(pc.equal(values, _NULL), pa.scalar(None, pa.string()), plain)
