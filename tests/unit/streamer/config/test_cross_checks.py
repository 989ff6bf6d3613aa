from __future__ import annotations

from collections.abc import Mapping

import pytest

from streamer.config.errors import ConfigError
from streamer.config.load import apply_override, validated


def reported(*overrides: str) -> list[str]:
    tree: dict[str, object] = {
        "source": {"bootstrap_servers": "b:1", "topic": "t"},
        "decode": {"schema": {"id": "string", "ts": "bigint", "at": "struct<day:date>"}},
        "table": {"path": "/lake/t", "record_key": "id"},
    }
    for override in overrides:
        apply_override(tree, override)
    try:
        validated(tree)
    except ConfigError as error:
        return str(error).splitlines()
    return []


_MOVES = ("table.partition_change=move", "table.partition_by=at.day", "decode.tombstone_key=raw")

CASES: Mapping[str, tuple[list[str], str]] = {
    "an end of a run that should not end": (
        ["source.ending_offsets={0: 5}"],
        "source.ending_offsets: needs run.mode: once, but this is continuous; start the run with",
    ),
    "absent fields and a merger of one's own": (
        ["table.partial_update=absent_fields", "table.merger=shop:Totals"],
        "table.partial_update: absent_fields cannot be combined with your own merger",
    ),
    "partition changes without partitions": (
        ["table.partition_change=reject"],
        "table.partition_change: reject has no effect without table.partition_by; remove it",
    ),
    "moves of rows between buckets": (
        [*_MOVES, "table.buckets=4"],
        "table.buckets: table.partition_change: move needs a table without buckets; remove one of",
    ),
    "moves of partial rows": (
        [*_MOVES, "table.partial_update=absent_fields"],
        "table.partition_change: move cannot be combined with partial updates; remove one of them",
    ),
    "moves with a payload of partial updates": (
        [*_MOVES, "table.payload=PartialUpdateAvroPayload", "table.ordering=ts"],
        "table.partition_change: move cannot be combined with partial updates; remove one of them",
    ),
    "moves with a merger of one's own": (
        [*_MOVES, "table.merger=shop:Totals"],
        "table.partition_change: move cannot be combined with your own merger; remove one of them",
    ),
    "inserts into buckets": (
        ["table.operation=insert", "table.buckets=4"],
        "table.buckets: table.operation: insert needs a table without buckets; remove one of them",
    ),
    "inserts that would move rows": (
        [*_MOVES, "table.operation=insert"],
        "table.operation: insert does not change rows, so partition_change move has no effect",
    ),
    "upserts without a key": (
        ["table.record_key=[]"],
        "table.record_key: is empty, but upsert finds rows by their record keys",
    ),
    "new keys that are looked up": (
        ["table.record_key=[]", "table.operation=insert", "table.duplicates=drop"],
        "table.duplicates: drop has no effect if table.record_key is empty",
    ),
    "new keys that are not stored": (
        ["table.record_key=[]", "table.operation=insert", "table.meta_columns=false"],
        "table.meta_columns: false cannot be combined with an empty table.record_key",
    ),
    "inserts of partial rows": (
        ["table.operation=insert", "table.partial_update=absent_fields"],
        "table.operation: insert adds whole rows, but partial_update is absent_fields",
    ),
    "duplicates of upserts": (
        ["table.duplicates=drop"],
        "table.duplicates: drop has an effect only with table.operation: insert; remove it",
    ),
    "absent fields and a column that marks deletes": (
        ["table.partial_update=absent_fields", "decode.schema._hoodie_is_deleted=boolean"],
        "decode.schema._hoodie_is_deleted: Apache Hudi cannot read partial rows in a table with",
    ),
    "absent fields and a delete marker": (
        [
            "decode.schema.op=string",
            "table.partial_update=absent_fields",
            "table.delete_when.field=op",
            "table.delete_when.value=d",
        ],
        "table.delete_when: cannot be combined with partial_update absent_fields: Apache Hudi",
    ),
    "absent fields and a payload that marks deletes": (
        [
            "decode.schema.Op=string",
            "table.partial_update=absent_fields",
            "table.payload=AWSDmsAvroPayload",
        ],
        "table.payload: AWSDmsAvroPayload implies delete_when Op = 'D', which cannot be combined",
    ),
    "deletes marked by a number that has many texts": (
        [
            "decode.schema.op=double",
            "table.delete_when.field=op",
            "table.delete_when.value=d",
        ],
        "table.delete_when: column 'op' marks deletes by the text 'd'; declare it as string, bool",
    ),
    "deletes marked by a text that no number has": (
        ["table.delete_when.field=ts", "table.delete_when.value=d"],
        "table.delete_when: column 'ts' marks deletes by the text 'd', which no value of type int64"
        " has; declare it as string",
    ),
    "deletes marked by the key": (
        ["table.delete_when.field=id", "table.delete_when.value=d"],
        "table.delete_when: 'id' is the record key, so only one key could be deleted; name a",
    ),
    "an operation that is no text": (
        ["decode.schema._hoodie_operation=int"],
        "decode.schema._hoodie_operation: int32: column '_hoodie_operation' marks deletes; declare "
        "it as string",
    ),
    "an order of structs": (
        ["table.ordering=at"],
        "table.ordering: 'at' is of type struct<day: date32[day]>, which has no order; name a",
    ),
    "an order of arrays": (
        ["decode.schema.tags=array<int>", "table.ordering=tags"],
        "table.ordering: 'tags' is of type list<element: int32>, which has no order; name a",
    ),
    "an order of texts": (
        ["table.ordering=[ts, id]"],
        "table.ordering: 'id' is of type string, and text is compared character by character: "
        "'10:00+05:00' counts as newer than '08:00Z'; order by a timestamp, a date or a number",
    ),
    "an order of texts inside a struct": (
        ["decode.schema.at=struct<seen:string>", "table.ordering=at.seen"],
        "table.ordering: 'at.seen' is of type string, and text is compared character by",
    ),
    "an order of texts of a payload that names no columns": (
        ["table.ordering=id", "table.payload=DefaultHoodieRecordPayload"],
        "table.ordering: 'id' is of type string, and text is compared character by character",
    ),
    "an order of a field that a struct lacks": (
        ["table.ordering=at.hour"],
        "table.ordering: field 'at.hour' is not among the columns id, ts, at",
    ),
    "tombstones ordered by a time that their column cannot hold": (
        [
            "decode.schema.seen=string",
            "decode.tombstone_ordering=record_timestamp",
            "table.ordering=seen",
            "table.allow_text_ordering=true",
        ],
        "decode.tombstone_ordering: tombstones are ordered by record_timestamp, which column 'seen'"
        " of type string cannot hold; declare it as bigint or timestamp",
    ),
    "an alias of a column of the format's own": (
        ["decode.schema._hoodie_is_deleted=boolean", "decode.aliases.gone=_hoodie_is_deleted"],
        "decode.aliases.gone: '_hoodie_is_deleted' is empty or reserved by Hudi; name a field",
    ),
    "an alias without a name": (
        ["decode.aliases={'': ts}"],
        "decode.aliases.: '' is empty or reserved by Hudi; name a field of the records",
    ),
    "an alias that is the format's own": (
        ["decode.aliases._hoodie_commit_time=ts"],
        "decode.aliases._hoodie_commit_time: '_hoodie_commit_time' is empty or reserved by Hudi",
    ),
    "ordered tombstones in a table that is not ordered": (
        ["decode.tombstone_ordering=record_timestamp"],
        "decode.tombstone_ordering: record_timestamp has no effect with merge_mode commit_time",
    ),
    "ordered tombstones and two ordering columns": (
        ["decode.tombstone_ordering=record_timestamp", "table.ordering=[ts, at.day]"],
        "decode.tombstone_ordering: record_timestamp is one value, but table.ordering has 2 "
        "columns",
    ),
    "a key of tombstones that are ignored": (
        ["decode.tombstones=ignore", "decode.tombstone_key=json"],
        "decode.tombstone_key: has no effect if decode.tombstones is ignore; remove it",
    ),
    "an order of tombstones that are ignored": (
        [
            "decode.tombstones=ignore",
            "table.ordering=ts",
            "decode.tombstone_ordering=record_timestamp",
        ],
        "decode.tombstone_ordering: has no effect if decode.tombstones is ignore; remove it",
    ),
    "tombstones ordered by a field of a key that is no object": (
        ["decode.tombstone_ordering=gone_at", "table.ordering=ts"],
        "decode.tombstone_ordering: gone_at is a field of a JSON key, but decode.tombstone_key is",
    ),
    "event time without a time": (
        ["table.merge_mode=event_time"],
        "table.merge_mode: event_time needs ordering: name the columns",
    ),
    "a mode of one's own without a merger": (
        ["table.merge_mode=custom"],
        "table.merge_mode: custom needs merger: name a class as package.module:Class",
    ),
    "a merger without an effect": (
        ["table.merge_mode=commit_time", "table.merger=shop:Totals"],
        "table.merger: shop:Totals has no meaning with merge_mode commit_time; use custom",
    ),
    "a merger that is no class": (
        ["table.merger=shop.Totals"],
        "table.merger: merger 'shop.Totals' is not a class path; write package.module:Class or "
        "FILE.py:Class",
    ),
    "a merger and a partial update": (
        ["table.merger=shop:Totals", "table.partial_update=ignore_defaults"],
        "table.partial_update: ignore_defaults has no meaning with a merger of your own",
    ),
    "a partial update without its text": (
        ["table.partial_update=fill_unavailable"],
        "table.partial_update: fill_unavailable needs unavailable_value",
    ),
    "a text that nothing fills": (
        ["table.unavailable_value=gone"],
        "table.unavailable_value: 'gone' has no meaning with partial_update none",
    ),
    "an unknown payload": (
        ["table.payload=FirstValueAvroPayload"],
        "table.payload: FirstValueAvroPayload is unknown; use one of DefaultHoodieRecordPayload",
    ),
    "a payload and another mode": (
        ["table.payload=OverwriteWithLatestAvroPayload", "table.merge_mode=event_time"],
        "table.merge_mode: event_time contradicts payload OverwriteWithLatestAvroPayload",
    ),
    "a payload that fills and rows that are not": (
        [
            "table.ordering=ts",
            "table.payload=PartialUpdateAvroPayload",
            "table.partial_update=none",
        ],
        "table.partial_update: none contradicts payload PartialUpdateAvroPayload, which implies "
        "ignore_defaults; remove one of them",
    ),
    "a payload that fills and absent fields": (
        [
            "table.payload=OverwriteNonDefaultsWithLatestAvroPayload",
            "table.partial_update=absent_fields",
        ],
        "table.partial_update: absent_fields contradicts payload OverwriteNonDefaults",
    ),
    "a payload's delete marker said otherwise": (
        [
            "decode.schema.Op=string",
            "table.payload=AWSDmsAvroPayload",
            "table.delete_when.field=Op",
            "table.delete_when.value=d",
        ],
        "table.delete_when: Op = 'd' contradicts payload AWSDmsAvroPayload, which means Op = 'D'",
    ),
    "a payload whose column no row has": (
        ["table.payload=AWSDmsAvroPayload"],
        "table.payload: 'Op' is not a column of decode.schema (at, id, ts)",
    ),
    "half a delete marker": (
        ["table.delete_when.field=id"],
        "table.delete_when.value: missing",
    ),
    "a time that is not looked at": (
        ["table.merge_mode=commit_time", "table.ordering=ts"],
        "table.ordering: has no effect with merge_mode commit_time; remove one of them",
    ),
    "a tombstone without its partition": (
        ["decode.tombstone_key=raw", "table.partition_by=ts"],
        "decode.tombstone_key: raw does not name a partition, but table.partition_by is set; "
        "use json, or set table.partition_change to move",
    ),
    "a tombstone with half a key": (
        ["decode.tombstone_key=raw", "table.record_key=[id, ts]"],
        "decode.tombstone_key: raw is one value, but table.record_key has 2 columns; use json",
    ),
    "rescue to nowhere": (
        ["decode.unknown_fields=rescue"],
        "decode.rescue_column: missing; unknown_fields: rescue needs it",
    ),
    "wider values rescued to nowhere": (
        ["decode.wider_values=rescue"],
        "decode.rescue_column: missing; wider_values: rescue needs it",
    ),
    "an alias of no column": (
        ["decode.aliases.day=date"],
        "decode.aliases.day: 'date' is not a column of decode.schema (at, id, ts)",
    ),
    "an alias that is a column": (
        ["decode.aliases.ts=id"],
        "decode.aliases.ts: is itself a column of decode.schema",
    ),
    "nothing to rescue": (
        ["decode.rescue_column=rest"],
        "decode.rescue_column: has no effect if unknown_fields is ignore",
    ),
    "two columns of one name": (
        ["decode.unknown_fields=rescue", "decode.rescue_column=ts"],
        "decode.schema.ts: another setting adds a column of this name",
    ),
    "a key that no row has": (
        ["table.record_key=[id, line]"],
        "table.record_key: 'line' is not a column of decode.schema (at, id, ts)",
    ),
    "a type that does not exist": (
        ["decode.schema.n=number"],
        "decode.schema: column 'n': cannot read the type 'number': unknown type 'number'",
    ),
    "a column of the format's own": (
        ["decode.schema._hoodie_record_key=string"],
        "decode.schema: column '_hoodie_record_key' is one of the columns that Hudi itself adds",
    ),
    "dead letters in the table": (
        ["dead_letters.path=/lake/t/bad"],
        "dead_letters.path: /lake/t/bad and table.path must not contain each other",
    ),
    "dead letters in the table, by a detour": (
        ["dead_letters.path=/lake/../lake/./t/bad"],
        "dead_letters.path: /lake/../lake/./t/bad and table.path must not contain each other",
    ),
    "dead letters in the table, as a url": (
        ["dead_letters.path=file:///lake/t"],
        "dead_letters.path: file:///lake/t and table.path must not contain each other",
    ),
    "dead letters in a table on a store": (
        ["table.path=s3://lake/t/", "dead_letters.path=s3a://lake/t/bad"],
        "dead_letters.path: s3a://lake/t/bad and table.path must not contain each other",
    ),
    "log files that are never written": (
        ["table.type=copy_on_write", "table.log_format=avro"],
        "table.log_format: avro has no effect with table.type copy_on_write, which has no log",
    ),
    "a level of a codec without levels": (
        ["base_files.compression=snappy", "base_files.compression_level=3"],
        "base_files.compression_level: 3: snappy has no levels; remove it, or choose zstd or gzip",
    ),
    "a level that the codec does not have": (
        ["base_files.compression=gzip", "base_files.compression_level=22"],
        "base_files.compression_level: 22: gzip has the levels 1 to 9",
    ),
    "partial rows without meta columns": (
        ["table.meta_columns=false", "table.partial_update=absent_fields"],
        "table.partial_update: absent_fields cannot be combined with meta_columns: false",
    ),
    "keys without meta columns that readers compute differently": (
        [
            "table.meta_columns=false",
            "table.partition_by=[ts, at]",
            "decode.tombstone_key=json",
        ],
        "table.meta_columns: false needs several record key columns",
    ),
    "a partition column in a key without meta columns": (
        ["table.meta_columns=false", "table.partition_by=id"],
        "table.meta_columns: false needs a record key without partition columns",
    ),
    "all of one limit of compaction": (
        ["compaction.after=1h", "compaction.when=all"],
        "compaction.when: all has no effect unless two of",
    ),
    "partitions to compact of a table without partitions": (
        ["compaction.partitions=day=*"],
        "compaction.partitions: has no effect without table.partition_by",
    ),
    "partitions to compact first of a table without partitions": (
        ["compaction.order=newest_partitions"],
        "compaction.order: newest_partitions has no effect without table.partition_by",
    ),
    "asynchronous compaction of a copy-on-write table": (
        ["table.type=copy_on_write", "compaction.mode=async"],
        "compaction.mode: async has no effect with table.type copy_on_write",
    ),
    "a metadata table that is rebuilt and removed": (
        ["table.metadata_table=false", "table.drop_metadata_table=true"],
        "table.drop_metadata_table: rebuilds the metadata table, but metadata_table: false",
    ),
    "statistics without a metadata table": (
        ["table.metadata_table=false", "table.statistics_columns=[ts]"],
        "table.statistics_columns: statistics are in the metadata table, but metadata_table is",
    ),
    "statistics of an unknown column": (
        ["table.statistics_columns=[none]"],
        "table.statistics_columns: 'none' is not a column of decode.schema (at, id, ts",
    ),
    "a place for dead letters that are not kept": (
        ["dead_letters.enabled=false", "dead_letters.path=/lake/bad"],
        "dead_letters.path: /lake/bad has no effect if dead_letters.enabled is false",
    ),
    "a share of dead letters that are not kept": (
        ["dead_letters.enabled=false", "dead_letters.max_share=0.5"],
        "dead_letters.max_share: 0.5 has no effect if dead_letters.enabled is false",
    ),
    "a count of dead letters that are not kept": (
        ["dead_letters.enabled=false", "dead_letters.tolerated=5"],
        "dead_letters.tolerated: 5 has no effect if dead_letters.enabled is false",
    ),
    "a longest pause that is shorter than the first": (
        ["run.retry.backoff_s=90"],
        "run.retry.max_backoff_s: 60 is less than backoff_s, 90; raise it, or lower backoff_s",
    ),
    "a field of a column that has none as the key": (
        ["table.record_key=id.x"],
        "table.record_key: field 'id.x' is not among the columns id, ts, at",
    ),
    "a partition by a field that a struct lacks": (
        ["table.partition_by=at.hour", "decode.tombstone_key=json"],
        "table.partition_by: field 'at.hour' is not among the columns id, ts, at",
    ),
    "the table in its dead letters": (
        ["dead_letters.path=/lake"],
        "dead_letters.path: /lake and table.path must not contain each other",
    ),
}


@pytest.mark.parametrize(("overrides", "problem"), CASES.values(), ids=CASES)
def test_contradiction_is_refused_with_its_reason(overrides: list[str], problem: str) -> None:
    (line,) = reported(*overrides)
    assert line.startswith(problem)


@pytest.mark.parametrize(
    "overrides",
    [
        ["table.ordering=ts"],
        ["table.ordering=[ts, at.day]", "table.partial_update=ignore_defaults"],
        ["table.ordering=[ts, id]", "table.allow_text_ordering=true"],
        [
            "decode.schema={id: string, _event_bin_file: string, _event_pos: int, op: string}",
            "table.payload=MySqlDebeziumAvroPayload",
            "decode.schema._change_operation_type=string",
        ],
        ["table.partial_update=absent_fields"],
        ["table.partial_update=absent_fields", "table.type=copy_on_write"],
        ["table.partial_update=fill_unavailable", "table.unavailable_value=gone"],
        ["decode.schema.op=string", "table.delete_when.field=op", "table.delete_when.value=gone"],
        ["table.delete_when.field=ts", "table.delete_when.value='-1'"],
        ["table.ordering=at.day"],
        ["table.ordering=ts", "decode.tombstone_ordering=record_timestamp"],
        ["decode.tombstones=ignore", "table.partition_by=at.day"],
        ["table.payload=PartialUpdateAvroPayload", "table.ordering=ts"],
        ["table.payload=OverwriteWithLatestAvroPayload"],
        ["table.merger=shop.merging:Totals", "table.ordering=ts"],
        ["table.partition_by=at.day", "decode.tombstone_key=json"],
        ["decode.unknown_fields=rescue", "decode.rescue_column=rest"],
        ["source.metadata_columns=[offset]", "table.ordering=_hoodie_kafka_source_offset"],
        ["decode.schema=infer", "table.record_key=anything"],
        ["table.type=copy_on_write", "compaction.after_commits=3"],
        ["compaction.after_commits=3", "compaction.after=1h", "compaction.when=all"],
        ["table.partition_by=at", "compaction.partitions=at=2026-*"],
        ["dead_letters.enabled=false"],
        ["dead_letters.enabled=false", "dead_letters.path=/lake/t_dead_letters"],
        ["dead_letters.path=/lake/t2"],
        ["dead_letters.path=/lake/t/../t2"],
        ["table.path=s3://lake/t", "dead_letters.path=s3://lake/t2"],
        ["table.path=s3://lake/t", "dead_letters.path=gs://lake/t/bad"],
    ],
    ids=str,
)
def test_valid_combinations_are_accepted(overrides: list[str]) -> None:
    assert reported(*overrides) == []


def test_several_contradictions_are_reported_together() -> None:
    overrides = ("table.merge_mode=event_time", "table.partition_by=day", "decode.rescue_column=r")
    assert len(reported(*overrides)) == 3
