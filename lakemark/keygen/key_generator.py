"""Computes record keys and partition paths of incoming rows, in Apache Hudi's format.

SIMPLE         key ``<value>``                path ``<value>``
TIMESTAMP      key ``<value>``                path ``<formatted time>``
COMPLEX        key ``f1:v1,f2:v2``            path ``<value>/<value>``
CUSTOM         key as SIMPLE for one field,   path as COMPLEX, with values or formatted times
               as COMPLEX for several
NON_PARTITION  key as CUSTOM                  path the root

Without record key fields, a record key does not depend on the columns
(``lakemark.keygen.automatic_keys``), and only the partition path is computed.

COMPLEX with one record key field has two encodings. Hudi up to 0.14.0, and every writer of table
version 9, write ``f1:v1``. Hudi 0.14.1 to 1.0.2 wrote ``v1`` (table versions 6 and 8). Since Hudi
1.1, a writer of table versions 6 and 8 chooses by ``hoodie.write.complex.keygen.new.encoding``
(false: ``f1:v1``). No property of the table records the encoding, so
``lakemark.index.stored_rows`` detects it from the rows.

Source: ``SimpleAvroKeyGenerator``, ``ComplexAvroKeyGenerator``, ``NonpartitionedAvroKeyGenerator``,
``TimestampBasedAvroKeyGenerator``, ``CustomAvroKeyGenerator``,
``KeyGenerator.constructRecordKey``, ``KeyGenUtils.encodeSingleKeyFieldNameForComplexKeyGen`` of
Apache Hudi 1.2.0.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.key_generators import KeyGeneratorType, find_implemented, infer_key_generator
from lakemark.config.partition_field import PartitionField
from lakemark.config.table_properties import TableProperties
from lakemark.config.time_folders import TimeFolders
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.keygen.key_value import key_value
from lakemark.keygen.partition_expressions import compute_expressions, find_valueless
from lakemark.keygen.partition_path import partition_paths
from lakemark.keygen.slash_separated_dates import date_paths
from lakemark.keygen.time_folder_names import time_folder_names

#: Placeholders for a part of a complex key that is null or an empty string.
NULL_PART = "__null__"
EMPTY_PART = "__empty__"

#: The types that take one record key field and one partition field, and the types for several.
_SINGLE = {
    KeyGeneratorType.SIMPLE: KeyGeneratorType.COMPLEX,
    KeyGeneratorType.TIMESTAMP: KeyGeneratorType.CUSTOM,
}


@dataclass(frozen=True, slots=True)
class KeyGeneratorConfig:
    """Settings that determine record keys and partition paths, from the table's properties.

    Attributes:
        record_key_fields: fields of the record key; none if record keys are automatic.
        partition_fields: fields of the partition path, outermost first.
        kind: stored type of the key generator; if None, it is inferred from the fields, as in Hudi.
        hive_style: whether partition folders are named ``field=value``.
        url_encode: whether special characters of partition values are written ``%XX``.
        slash_separated_dates: whether the folders of a date are ``yyyy/MM/dd``
            (``lakemark.keygen.slash_separated_dates``).
        bare_lone_key: whether COMPLEX with one record key field writes the value without the name
            of the field.
        time_folders: how times are formatted; None if no partition field is a formatted time.
        time_fields: the partition fields whose times are formatted.
        expressions: the partition fields that store an expression of another column.
    """

    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...] = ()
    kind: KeyGeneratorType | None = None
    hive_style: bool = False
    url_encode: bool = False
    slash_separated_dates: bool = False
    bare_lone_key: bool = False
    time_folders: TimeFolders | None = None
    time_fields: frozenset[str] = frozenset()
    expressions: tuple[PartitionField, ...] = ()

    def __post_init__(self) -> None:
        kind = self.effective_kind
        if kind is KeyGeneratorType.NON_PARTITION and self.partition_fields:
            message = f"{kind} takes no partition fields, but has {list(self.partition_fields)}"
        elif kind in _SINGLE and not self.partition_fields:
            message = f"{kind} needs a partition field; without one the type is NON_PARTITION"
        elif kind in _SINGLE and (
            len(self.record_key_fields) > 1 or len(self.partition_fields) > 1
        ):
            message = (
                f"{kind} takes one record key field and one partition field; use {_SINGLE[kind]}"
            )
        elif self.slash_separated_dates and not self._may_separate_dates:
            message = (
                f"slash-separated dates need {KeyGeneratorType.SIMPLE} or "
                f"{KeyGeneratorType.COMPLEX} with one partition field, and no Hive-style folders, "
                f"but the key generator is {kind} of {list(self.partition_fields)}, and hive_style "
                f"is {self.hive_style}"
            )
        else:
            return
        raise InvalidConfig(message)

    @property
    def effective_kind(self) -> KeyGeneratorType:
        """The type of the key generator: ``kind``, or the type that Hudi infers from the fields."""
        return self.kind or infer_key_generator(self.record_key_fields, self.partition_fields)

    @property
    def _may_separate_dates(self) -> bool:
        is_plain = self.effective_kind in (KeyGeneratorType.SIMPLE, KeyGeneratorType.COMPLEX)
        return is_plain and len(self.partition_fields) == 1 and not self.hive_style

    @property
    def has_automatic_keys(self) -> bool:
        """Whether record keys are automatic, so that they cannot be computed from columns."""
        return not self.record_key_fields

    @property
    def has_lone_complex_key(self) -> bool:
        """Whether the record key has two possible encodings, see ``bare_lone_key``."""
        is_complex = self.effective_kind is KeyGeneratorType.COMPLEX
        return is_complex and len(self.record_key_fields) == 1

    @property
    def names_key_fields(self) -> bool:
        """Whether a record key is ``f1:v1,f2:v2`` rather than a value alone."""
        if self.has_lone_complex_key:
            return not self.bare_lone_key
        return len(self.record_key_fields) > 1

    def encodings_of(self, record_key: str) -> set[str]:
        """Return the texts by which writers of the table may have stored a record key.

        They are several if the record key has two possible encodings. Then the given text may be
        in either of them, so that some of the returned texts may be those of another record.
        """
        if not self.has_lone_complex_key:
            return {record_key}
        name = f"{self.record_key_fields[0]}:"
        return {record_key, f"{name}{record_key}", record_key.removeprefix(name)} - {""}

    @classmethod
    def of(cls, properties: TableProperties, table_url: str) -> KeyGeneratorConfig:
        """Return the settings of a table, with the default key encoding of Apache Hudi 1.2.

        Args:
            properties: properties of the table.
            table_url: URL of the table, for errors.

        Raises:
            Unsupported: the key generator is not implemented.
            InvalidConfig: the fields do not fit the key generator.
        """
        kind = find_implemented(properties.key_generator)
        if kind is None:
            named = properties.key_generator_class or properties.key_generator
            message = (
                f"table {table_url} has the key generator {properties.key_generator} ({named}), "
                f"but lakemark supports only {', '.join(KeyGeneratorType)}; write to another path, "
                "or with Apache Hudi"
            )
            raise Unsupported(message)
        expressions = properties.partition_expressions
        times = frozenset(
            one.column
            for one in properties.partition_by
            if one.pattern is not None and one not in expressions
        )
        return cls(
            properties.record_key_fields,
            properties.partition_fields,
            kind,
            properties.hive_style,
            properties.url_encode,
            properties.slash_separated_dates,
            time_folders=TimeFolders.of(properties.values) if times else None,
            time_fields=times,
            expressions=expressions,
        )

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns from which the partition path is computed, in the order of the path."""
        columns = {one.stored_column: one.column for one in self.expressions}
        names = (columns.get(name, name) for name in self.partition_fields)
        return tuple(dict.fromkeys(names))

    @property
    def no_path_reason(self) -> str:
        """Why a row has no partition path, for errors."""
        names = " or ".join(self.partition_fields)
        if self.slash_separated_dates:
            return f"the value of {names} is not a date such as 2026-01-02"
        return (
            f"the value of {names} cannot name a folder, for example because it has a slash or "
            "more than 255 bytes"
        )


@dataclass(frozen=True, slots=True)
class KeyGenerator:
    """Computes the record keys and partition paths of rows; a null marks a row as invalid."""

    config: KeyGeneratorConfig

    def record_keys(self, rows: pa.Table) -> pa.Array:
        """Return the record key of each row; null if all parts of the key are null or empty.

        Raises:
            InvalidConfig: a field is missing, or its type cannot be a key; or keys are automatic.
        """
        fields = self.config.record_key_fields
        if self.config.has_automatic_keys:
            message = (
                "the table has no record key columns (hoodie.table.recordkey.fields), so record "
                "keys cannot be computed from its rows"
            )
            raise InvalidConfig(message)
        values = [key_value(rows, name) for name in fields]
        if not self.config.names_key_fields:
            return pc.if_else(_is_not_empty(values[0]), values[0], None)
        parts = [_key_part(name, value) for name, value in zip(fields, values, strict=True)]
        has_value = _is_not_empty(values[0])
        for value in values[1:]:
            has_value = pc.or_(has_value, _is_not_empty(value))
        return pc.if_else(has_value, pc.binary_join_element_wise(*parts, ","), None)

    def find_ambiguous_keys(self, rows: pa.Table) -> pa.Array:
        """Flag rows whose record key could also be that of a row with other values.

        Only keys of several parts can be ambiguous. Such a key is ambiguous if the value of a part
        is the text ``__null__`` or ``__empty__``, or contains ``,<next field>:``. Apache Hudi
        writes the same record key for both rows, so one row would replace the other.
        """
        fields = self.config.record_key_fields
        found = pa.repeat(pa.scalar(False), rows.num_rows)
        if len(fields) > 1:
            for name, following in zip(fields, [*fields[1:], None], strict=True):
                found = pc.or_(found, _is_ambiguous(key_value(rows, name), following))
        return found

    def compute_expressions(self, rows: pa.Table) -> pa.Table:
        """Return rows with computed values in the columns that store partition expressions.

        Raises:
            InvalidConfig: a column is missing.
        """
        return compute_expressions(rows, self.config.expressions)

    def partition_paths(self, rows: pa.Table) -> pa.Array:
        """Return the partition path of each row, relative to the table; null if it is not allowed.

        The path of a table without partitions is "". The columns that store partition expressions
        must have been computed.

        Raises:
            InvalidConfig: a field is missing, or its type cannot be a path.
        """
        fields = self.config.partition_fields
        if not fields:
            return pa.repeat("", rows.num_rows)
        values = [self._folder_values(rows, name) for name in fields]
        if self.config.slash_separated_dates:
            paths = date_paths(values[0])
        else:
            paths = partition_paths(
                fields,
                values,
                hive_style=self.config.hive_style,
                url_encode=self.config.url_encode,
                nested_fields=self.config.time_fields,
            )
        for name, names in zip(fields, values, strict=True):
            if name in self.config.time_fields and names.null_count:
                paths = pc.if_else(names.is_null(), None, paths)
        for field in self.config.expressions:
            paths = pc.if_else(find_valueless(rows, field), None, paths)
        return paths

    def _folder_values(self, rows: pa.Table, name: str) -> pa.Array:
        folders = self.config.time_folders
        if folders is not None and name in self.config.time_fields:
            return time_folder_names(rows, name, folders)
        return key_value(rows, name)


def _key_part(name: str, values: pa.Array) -> pa.Array:
    named = pc.if_else(pc.equal(values, ""), EMPTY_PART, values)
    return pc.binary_join_element_wise(f"{name}:", pc.fill_null(named, NULL_PART), "")


def _is_ambiguous(values: pa.Array, following: str | None) -> pa.Array:
    found = pc.is_in(values.cast(pa.string()), value_set=pa.array([NULL_PART, EMPTY_PART]))
    if following is not None:
        found = pc.or_(found, pc.match_substring(values, f",{following}:"))
    return pc.fill_null(found, fill_value=False)


def _is_not_empty(values: pa.Array) -> pa.Array:
    return pc.fill_null(pc.not_equal(values, ""), fill_value=False)
