"""Finds settings that are valid alone but cannot be combined."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa

from lakemark.config.merge_request import find_payload_class, merge_properties, setting_text
from lakemark.config.merge_settings import payload_settings
from lakemark.config.table_properties import MergeMode
from lakemark.errors import InvalidConfig
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import IS_DELETED, OPERATION, is_reserved
from lakemark.schema.field_path import column_at, top_column
from lakemark.storage import canonical_url
from lakemark.write.delete_marks import DeleteMarks, check_marker
from streamer.config.any_source import AnySource
from streamer.config.column_roles import ordering_type_problems
from streamer.config.decode import AvroDecodeConfig, DecodeConfig
from streamer.config.errors import Problem
from streamer.config.format_checks import format_problems
from streamer.config.run import DeadLettersConfig, dead_letters_path
from streamer.config.table import TableConfig
from streamer.config.transform import AnyStep
from streamer.config.transform_checks import row_columns
from transforms.decode.avro_framing import load_writer_schema
from transforms.decode.stored_schema import StoredSchema
from transforms.schema_text import parse_schema, parse_type
from transforms.tombstone_ordering import RECORD_TIMESTAMP, TombstoneOrdering

#: For each wire format of Avro: the settings that it needs, and the settings that it does not use.
_OF_WIRE_FORMAT = {
    "confluent": (("schema_registry",), ("writer_schema",)),
    "plain": (("writer_schema",), ("schema_registry", "subject")),
}

#: Settings whose name in the pipeline file differs from the name in the merge request.
_NAMES = {"delete_marker": "delete_when"}


def find_contradictions(
    source: AnySource,
    decode: DecodeConfig,
    table: TableConfig,
    dead_letters: DeadLettersConfig,
    transform: Sequence[AnyStep] = (),
) -> list[Problem]:
    """Return a problem for each contradiction between the sections of a pipeline."""
    columns = row_columns(decode, transform)
    origin = "after transform" if transform else "of decode.schema"
    return [
        *_merging(table),
        *_tombstones(decode, table),
        *_tombstone_ordering(decode, table, columns),
        *_ordering(columns, table),
        *_nested(columns, table),
        *_delete_marks(columns, table),
        *_absent_fields(decode, table),
        *_rescuing(decode),
        *_avro(decode),
        *format_problems(decode, table),
        *_aliases(decode),
        *_columns(source, decode),
        *missing_columns(_known_columns(source, decode, transform), table, origin),
        *_log_format(table),
        *_partition_change(table),
        *_moves(table),
        *_inserts(table),
        *_automatic_keys(table),
        *_index_of_buckets(table),
        *_consistent_hashing(table),
        *_lookups(table),
        *_record_index(table),
        *_meta_columns(table),
        *_metadata_table(table),
        *_no_dead_letters(table, dead_letters),
        *_nested_paths(table, dead_letters),
    ]


def missing_columns(
    known: Collection[str] | None, table: TableConfig, origin: str = "of decode.schema"
) -> Iterator[Problem]:
    """Yield a problem for each column that the table's settings name but the rows do not have.

    Args:
        known: the names of all columns of the rows; None if they are not known yet.
        table: the table's settings.
        origin: where the columns come from, for the message.
    """
    if known is None:
        return
    named = (
        ("record_key", table.record_key),
        ("partition_by", table.partition_columns),
        ("ordering", table.ordering),
        ("statistics_columns", table.statistics_columns or ()),
        (_marker_setting(table), (table.delete_when.field,) if table.delete_when else ()),
    )
    for setting, columns in named:
        for column in columns:
            # For a field of a struct, such as "address.city", only the struct is checked here.
            if column not in known and column.partition(".")[0] not in known:
                text = f"{column!r} is not a column {origin} ({', '.join(sorted(known))})"
                yield Problem(f"table.{setting}", text)


def _merging(table: TableConfig) -> Iterator[Problem]:
    request = table.merge_request()
    faults = list(request.find_problems())
    for fault in faults:
        yield Problem(f"table.{_NAMES.get(fault.setting, fault.setting)}", fault.text)
    if faults:
        return
    implied = request.resolve()
    if implied.mode is MergeMode.COMMIT_TIME and table.ordering:
        text = "has no effect with merge_mode commit_time; remove one of them"
        yield Problem("table.ordering", text)
    if table.partial_update in ("none", "absent_fields") and implied.partial_update is not None:
        text = (
            f"{table.partial_update} contradicts payload {table.payload}, which implies "
            f"{setting_text(implied.partial_update)}; remove one of them"
        )
        yield Problem("table.partial_update", text)
    try:
        merge_properties(implied, request.payload_class, FormatVersion(table.version))
    except InvalidConfig as error:
        yield Problem("table.version", str(error))


def _absent_fields(decode: DecodeConfig, table: TableConfig) -> Iterator[Problem]:
    if table.partial_update != "absent_fields":
        return
    if FormatVersion(table.version) is FormatVersion.V6:
        text = (
            "absent_fields needs partial rows, which version 6 does not support; create version 8 "
            "or 9"
        )
        yield Problem("table.partial_update", text)
    if table.merge_mode == "custom":
        text = "absent_fields cannot be combined with your own merger; remove one of them"
        yield Problem("table.partial_update", text)
    reason = "Apache Hudi cannot read partial rows in a table with a column that marks deletes"
    if marker := table.merge_request().delete_marker:
        setting = _marker_setting(table)
        implies = f"{table.payload} implies delete_when {setting_text(marker)}, which "
        text = (
            f"{implies if setting == 'payload' else ''}cannot be combined with partial_update "
            f"absent_fields: {reason}; remove one of them"
        )
        yield Problem(f"table.{setting}", text)
    for column in sorted({IS_DELETED, OPERATION} & (decode.declared_names or set())):
        text = f"{reason}; remove this column, or table.partial_update"
        yield Problem(f"decode.schema.{column}", text)


def _tombstone_ordering(
    decode: DecodeConfig, table: TableConfig, schema: pa.Schema | None
) -> Iterator[Problem]:
    source, setting = decode.tombstone_ordering, "decode.tombstone_ordering"
    if source == "none":
        return
    if table.merge_mode == "commit_time":
        yield Problem(setting, f"{source} has no effect with merge_mode commit_time; use none")
    elif len(table.ordering) != 1:
        text = (
            f"{source} is one value, but table.ordering has {len(table.ordering)} columns; set "
            f"{setting} to none"
        )
        yield Problem(setting, text)
    elif source != RECORD_TIMESTAMP and decode.tombstone_key == "raw":
        text = f"{source} is a field of a JSON key, but decode.tombstone_key is raw; use json"
        yield Problem(setting, text)
    elif schema is not None and _has(schema, table.ordering[0]):
        try:
            TombstoneOrdering.for_table(source, schema, table.ordering, decode.timestamp_unit)
        except InvalidConfig as error:
            yield Problem(setting, str(error))


def _ordering(schema: pa.Schema | None, table: TableConfig) -> Iterator[Problem]:
    """Yield problems of ordering columns: a type without an order, or text that is not allowed."""
    for column in table.ordering:
        if schema is None or not _has(schema, column):
            continue
        try:
            kind = column_at(schema.empty_table(), column).type
        except InvalidConfig as error:
            yield Problem("table.ordering", str(error))
            continue
        if pa.types.is_nested(kind):
            text = (
                f"{column!r} is of type {kind}, which has no order; name a column of numbers, "
                "times or strings"
            )
            yield Problem("table.ordering", text)
    if schema is not None:
        yield from ordering_type_problems(schema, table)


def _nested(schema: pa.Schema | None, table: TableConfig) -> Iterator[Problem]:
    """Yield problems of key and partition columns that name a field which the struct lacks."""
    for setting, columns in (
        ("record_key", table.record_key),
        ("partition_by", table.partition_columns),
    ):
        for column in columns:
            if schema is not None and _has(schema, column):
                try:
                    column_at(schema.empty_table(), column)
                except InvalidConfig as error:
                    yield Problem(f"table.{setting}", str(error))


def _delete_marks(schema: pa.Schema | None, table: TableConfig) -> Iterator[Problem]:
    """Yield problems of columns that mark deletes but have a type that cannot contain the mark."""
    for name in (IS_DELETED, OPERATION):
        if schema is not None and name in schema.names:
            try:
                DeleteMarks(pa.schema([schema.field(name)]))
            except InvalidConfig as error:
                yield Problem(f"decode.schema.{name}", f"{schema.field(name).type}: {error}")
    marker, setting = table.merge_request().delete_marker, f"table.{_marker_setting(table)}"
    if marker is None:
        return
    if marker.field in table.record_key:
        text = (
            f"{marker.field!r} is the record key, so only one key could be deleted; name a column "
            "that contains the operation of the row"
        )
        yield Problem(setting, text)
    elif schema is not None and _has(schema, marker.field):
        try:
            check_marker(schema, marker)
        except InvalidConfig as error:
            yield Problem(setting, str(error))


def _marker_setting(table: TableConfig) -> str:
    """Return the name of the setting that defines the delete marker."""
    payload_class = find_payload_class(table.payload) if table.payload else None
    is_implied = payload_class is not None and payload_settings(payload_class).delete_marker
    return "payload" if is_implied else "delete_when"


def _tombstones(decode: DecodeConfig, table: TableConfig) -> Iterator[Problem]:
    if decode.tombstones == "ignore":
        for name, default in (("tombstone_key", None), ("tombstone_ordering", "none")):
            if getattr(decode, name) != default:
                text = "has no effect if decode.tombstones is ignore; remove it"
                yield Problem(f"decode.{name}", text)
        return
    if decode.tombstone_key != "raw":
        return
    if table.partition_by and not table.moves_rows:
        text = (
            "raw does not name a partition, but table.partition_by is set; use json, or set "
            "table.partition_change to move, which finds rows by their record keys"
        )
        yield Problem("decode.tombstone_key", text)
    if len(table.record_key) > 1:
        text = (
            f"raw is one value, but table.record_key has {len(table.record_key)} columns; use json"
        )
        yield Problem("decode.tombstone_key", text)


def _avro(decode: DecodeConfig) -> Iterator[Problem]:
    """Yield problems of Avro settings that are missing or have no effect."""
    if not isinstance(decode, AvroDecodeConfig):
        return
    needed, others = _OF_WIRE_FORMAT[decode.wire_format]
    for name in needed:
        if getattr(decode, name) is None:
            yield Problem(f"decode.{name}", f"missing; wire_format {decode.wire_format} needs it")
    for name in others:
        if getattr(decode, name) is not None:
            text = f"has no effect with wire_format {decode.wire_format}; remove it"
            yield Problem(f"decode.{name}", text)
    keys_need_schema = decode.tombstone_key == "avro" and decode.wire_format == "plain"
    if keys_need_schema is not (decode.key_schema is not None):
        pair = "with wire_format plain and tombstone_key avro"
        text = f"missing {pair}" if keys_need_schema else f"has an effect only {pair}; remove it"
        yield Problem("decode.key_schema", text)
    yield from _schemas_of_plain(decode)


def _schemas_of_plain(decode: AvroDecodeConfig) -> Iterator[Problem]:
    """Yield a problem for each schema text that cannot be converted to columns."""
    for name, field in (("writer_schema", None), ("key_schema", "key")):
        text = getattr(decode, name)
        schema = None if text is None else load_writer_schema("it", StoredSchema(text), field)
        if isinstance(schema, str):
            yield Problem(f"decode.{name}", f"cannot be converted to columns: {schema}")


def _rescuing(decode: DecodeConfig) -> Iterator[Problem]:
    rescuing = [
        name for name in ("unknown_fields", "wider_values") if getattr(decode, name) == "rescue"
    ]
    if rescuing and decode.rescue_column is None:
        yield Problem("decode.rescue_column", f"missing; {rescuing[0]}: rescue needs it")
    if not rescuing and decode.rescue_column is not None:
        text = (
            f"has no effect if unknown_fields is {decode.unknown_fields} and wider_values is "
            f"{decode.wider_values}; remove it"
        )
        yield Problem("decode.rescue_column", text)


def _aliases(decode: DecodeConfig) -> Iterator[Problem]:
    declared = decode.declared_names
    for alias, column in decode.aliases.items():
        names = [name for name in (alias, column) if _is_reserved_or_empty(name)]
        if names:
            text = (
                f"{names[0]!r} is empty or reserved by Hudi; name a field of the records and a "
                "column"
            )
            yield Problem(f"decode.aliases.{alias}", text)
            continue
        if declared is not None and column not in declared:
            text = f"{column!r} is not a column of decode.schema ({', '.join(sorted(declared))})"
            yield Problem(f"decode.aliases.{alias}", text)
        if declared is not None and alias in declared:
            yield Problem(f"decode.aliases.{alias}", "is itself a column of decode.schema")


def _is_reserved_or_empty(name: str) -> bool:
    return is_reserved(name) or not name.strip()


def _columns(source: AnySource, decode: DecodeConfig) -> Iterator[Problem]:
    declared = decode.declared_names
    if declared is None:
        return
    if isinstance(decode.columns, Mapping):
        yield from _types(decode.columns)
    for column in _added_columns(source, decode):
        if column in declared:
            yield Problem(f"decode.schema.{column}", "another setting adds a column of this name")


def _types(typed: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a problem for each invalid type; if all types are valid, for the first invalid name."""
    wrong = False
    for name, text in typed.items():
        try:
            parse_type(name, text)
        except InvalidConfig as error:
            wrong = True
            yield Problem("decode.schema", str(error))
    if not wrong:
        try:
            parse_schema(typed)
        except InvalidConfig as error:
            yield Problem("decode.schema", str(error))


def _log_format(table: TableConfig) -> Iterator[Problem]:
    if table.type == "copy_on_write" and table.log_format is not None:
        reason = "has no effect with table.type copy_on_write, which has no log files"
        yield Problem("table.log_format", f"{table.log_format} {reason}; remove it")


def _partition_change(table: TableConfig) -> Iterator[Problem]:
    if table.partition_change != "allow" and not table.partition_by:
        text = f"{table.partition_change} has no effect without table.partition_by; remove it"
        yield Problem("table.partition_change", text)


def _moves(table: TableConfig) -> Iterator[Problem]:
    """Yield problems of settings with which rows do not move to other partitions."""
    if not table.moves_rows:
        return
    setting, request = "table.partition_change", table.merge_request()
    if table.given_buckets is not None:
        text = f"{setting}: move needs a table without buckets; remove one of them"
        yield Problem("table.buckets", text)
    if table.merge_mode == "custom":
        yield Problem(setting, "move cannot be combined with your own merger; remove one of them")
    elif not [*request.find_problems()]:
        fills = request.resolve().partial_update is not None
        if fills or table.partial_update == "absent_fields":
            yield Problem(
                setting, "move cannot be combined with partial updates; remove one of them"
            )


def _inserts(table: TableConfig) -> Iterator[Problem]:
    """Yield problems of settings that have no meaning if records are only inserted."""
    setting = "table.operation"
    if not table.inserts:
        if table.duplicates != "allow":
            text = f"{table.duplicates} has an effect only with {setting}: insert; remove it"
            yield Problem("table.duplicates", text)
        return
    if table.given_buckets is not None:
        text = f"{setting}: insert needs a table without buckets; remove one of them"
        yield Problem("table.buckets", text)
    if table.partition_change != "allow":
        text = f"insert does not change rows, so partition_change {table.partition_change} has no"
        yield Problem(setting, f"{text} effect; remove one of them")
    if table.partial_update == "absent_fields":
        text = "insert adds whole rows, but partial_update is absent_fields; remove one of them"
        yield Problem(setting, text)


def _automatic_keys(table: TableConfig) -> Iterator[Problem]:
    """Yield problems of settings that need record key columns, if there are none."""
    if not table.has_automatic_keys:
        return
    if not table.inserts:
        text = (
            f"is empty, but {table.operation} finds rows by their record keys; name the columns "
            "that identify a row, or use table.operation: insert"
        )
        yield Problem("table.record_key", text)
    if table.duplicates != "allow":
        text = (
            f"{table.duplicates} has no effect if table.record_key is empty, because each record "
            "gets a new record key; remove it"
        )
        yield Problem("table.duplicates", text)
    if not table.meta_columns:
        text = (
            "false cannot be combined with an empty table.record_key, because only meta columns "
            "store automatic record keys; remove one of them"
        )
        yield Problem("table.meta_columns", text)


def _index_of_buckets(table: TableConfig) -> Iterator[Problem]:
    """Yield a problem if rows must not stay in buckets, but the index is one of buckets."""
    if table.index == "bucket" and table.needs_lookup_index:
        other = "partition_change: move" if table.moves_rows else "operation: insert"
        text = f"bucket cannot be combined with table.{other}; use index: lookup"
        yield Problem("table.index", text)


def _lookups(table: TableConfig) -> Iterator[Problem]:
    """Yield problems of settings that need buckets, in a table whose keys are looked up."""
    if table.index != "lookup" and not table.has_record_index:
        return
    if table.given_buckets is not None and not (table.moves_rows or table.inserts):
        text = f"has no effect with table.index: {table.index}; remove it"
        yield Problem("table.buckets", text)
    if table.partition_change in ("count", "reject"):
        text = (
            f"{table.index} cannot be combined with table.partition_change: "
            f"{table.partition_change}, which needs a bucket index; use partition_change: move, or "
            "remove one of them"
        )
        yield Problem("table.index", text)


def _record_index(table: TableConfig) -> Iterator[Problem]:
    """Yield problems of settings with which the keys of a record index would not be unique."""
    if not table.has_record_index:
        return
    setting, name = "table.index", table.index
    if table.drops_metadata_table:
        other = "drop_metadata_table: true" if table.metadata_table else "metadata_table: false"
        text = f"{name} is a part of the metadata table, but table.{other}; remove one of them"
        yield Problem(setting, text)
    if not table.meta_columns:
        text = f"{name} cannot be combined with table.meta_columns: false; remove one of them"
        yield Problem(setting, text)
    if table.has_automatic_keys:
        return  # each key is new
    if table.inserts and table.duplicates == "allow":
        text = (
            f"{name} has one row of each key, but table.operation: insert may add several; use "
            "duplicates: drop, or index: lookup"
        )
        yield Problem(setting, text)
    if table.has_partitioned_index:
        if table.moves_rows:
            text = (
                f"{name} does not show whether another partition has a key, so that rows do not "
                "move; use record_index, or remove table.partition_change: move"
            )
            yield Problem(setting, text)
    elif not table.decides_partition and not table.moves_rows:
        remedy = (
            "use partitioned_record_index"
            if table.inserts
            else "set table.partition_change: move, or use partitioned_record_index"
        )
        text = f"{name} has one row of each key in the whole table, so rows must move; {remedy}"
        yield Problem(setting, text)


def _consistent_hashing(table: TableConfig) -> Iterator[Problem]:
    if table.index != "consistent_hashing":
        return
    text = "consistent_hashing cannot be combined with"
    if table.type == "copy_on_write":
        other = "table.type copy_on_write, for which Apache Hudi does not support it"
        yield Problem("table.index", f"{text} {other}; remove one of them")
    if table.partition_change != "allow":
        other = f"table.partition_change: {table.partition_change}"
        yield Problem("table.index", f"{text} {other}; remove one of them")
    if table.inserts:
        yield Problem("table.index", f"{text} table.operation: insert; remove one of them")
    if not table.meta_columns:
        yield Problem("table.index", f"{text} table.meta_columns: false; remove one of them")


def _meta_columns(table: TableConfig) -> Iterator[Problem]:
    if table.meta_columns:
        return
    if table.partial_update == "absent_fields":
        text = "absent_fields cannot be combined with meta_columns: false; remove one of them"
        yield Problem("table.partial_update", text)
    if len(table.record_key) == 1 and len(table.partition_by) > 1:
        text = (
            "false needs several record key columns if there are several partition columns, "
            "because readers of Apache Hudi compute another record key than its writers"
        )
        yield Problem("table.meta_columns", text)
    partition_columns = {field.stored_column for field in table.partition_fields}
    if table.type == "merge_on_read" and not partition_columns.isdisjoint(table.record_key):
        text = (
            "false needs a record key without partition columns in a merge_on_read table, because "
            "Apache Hudi cannot read its logs otherwise"
        )
        yield Problem("table.meta_columns", text)


def _metadata_table(table: TableConfig) -> Iterator[Problem]:
    if table.drop_metadata_table and not table.metadata_table:
        text = (
            "rebuilds the metadata table, but metadata_table: false removes it; omit one of "
            "these settings"
        )
        yield Problem("table.drop_metadata_table", text)
    if table.statistics_columns is not None and not table.metadata_table:
        text = "statistics are in the metadata table, but metadata_table is false; omit one of them"
        yield Problem("table.statistics_columns", text)


def _no_dead_letters(table: TableConfig, dead_letters: DeadLettersConfig) -> Iterator[Problem]:
    """Yield a problem for each changed dead-letter setting, if dead letters are disabled."""
    if dead_letters.enabled:
        return
    defaults = {
        "path": dead_letters_path(table.path),
        "max_share": DeadLettersConfig().max_share,
        "tolerated": DeadLettersConfig().tolerated,
        "retention": None,
    }
    for name, default in defaults.items():
        value = getattr(dead_letters, name)
        if value not in (default, ""):
            text = f"{value} has no effect if dead_letters.enabled is false; remove it"
            yield Problem(f"dead_letters.{name}", text)


def _nested_paths(table: TableConfig, dead_letters: DeadLettersConfig) -> Iterator[Problem]:
    if not dead_letters.path:
        return
    root, other = (
        canonical_url(path).rstrip("/") + "/" for path in (table.path, dead_letters.path)
    )
    if other.startswith(root) or root.startswith(other):
        text = f"{dead_letters.path} and table.path must not contain each other"
        yield Problem("dead_letters.path", text)


def _known_columns(
    source: AnySource, decode: DecodeConfig, transform: Sequence[AnyStep]
) -> set[str] | None:
    if transform:
        columns = row_columns(decode, transform)
        return None if columns is None else {*columns.names, *_metadata_columns(source)}
    declared = decode.declared_names
    return None if declared is None else {*declared, *_added_columns(source, decode)}


def _has(schema: pa.Schema, column: str) -> bool:
    return top_column(column, schema) in schema.names


def _added_columns(source: AnySource, decode: DecodeConfig) -> set[str]:
    rescued = () if decode.rescue_column is None else (decode.rescue_column,)
    return {*rescued, *decode.event_columns.names, *_metadata_columns(source)}


def _metadata_columns(source: AnySource) -> set[str]:
    return {one.name for one in source.record_columns}
