"""Finds settings that do not apply to the format of the values."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator

from streamer.config.change_events import DebeziumDecodeConfig, EnvelopeDecodeConfig
from streamer.config.decode import DecodeConfig, JsonDecodeConfig
from streamer.config.errors import Problem
from streamer.config.plain_values import CsvDecodeConfig, WholeValueConfig
from streamer.config.schema_formats import ProtobufDecodeConfig
from streamer.config.table import TableConfig
from transforms.decode.protobuf.framing import load_declared


def format_problems(decode: DecodeConfig, table: TableConfig) -> Iterator[Problem]:
    """Yield a problem for each setting that cannot be combined with the format."""
    kind = decode.model_dump(include={"format"})["format"]
    if table.partial_update == "absent_fields" and not isinstance(decode, JsonDecodeConfig):
        text = f"absent_fields needs JSON records, but decode.format is {kind}; remove one of them"
        yield Problem("table.partial_update", text)
    has_avro = kind == "avro" or (
        isinstance(decode, DebeziumDecodeConfig) and decode.schema_registry is not None
    )
    if decode.tombstone_key == "avro" and not has_avro:
        text = f"avro has no effect if decode.format is {kind}"
        without = " without decode.schema_registry" if kind == "debezium" else ""
        yield Problem("decode.tombstone_key", f"{text}{without}; use raw or json")
    has_messages = isinstance(decode, ProtobufDecodeConfig) and decode.schema_registry is not None
    if decode.tombstone_key == "protobuf" and not has_messages:
        text = "protobuf needs decode.format: protobuf with decode.schema_registry; use raw or json"
        yield Problem("decode.tombstone_key", text)
    if isinstance(decode, CsvDecodeConfig | WholeValueConfig):
        yield from _without_fields(decode, kind)
    if isinstance(decode, EnvelopeDecodeConfig):
        yield from _rescuing(decode, kind)
    if isinstance(decode, DebeziumDecodeConfig):
        yield from _debezium(decode)
    if isinstance(decode, ProtobufDecodeConfig):
        yield from _protobuf(decode)


def _rescuing(decode: EnvelopeDecodeConfig, kind: str) -> Iterator[Problem]:
    if isinstance(decode, DebeziumDecodeConfig) and decode.database == "mongodb":
        return
    for name in ("unknown_fields", "wider_values"):
        if getattr(decode, name) == "rescue":
            text = f"rescue cannot be combined with format {kind}; use evolve, or another choice"
            yield Problem(f"decode.{name}", text)


def _debezium(decode: DebeziumDecodeConfig) -> Iterator[Problem]:
    if decode.schema_registry is not None and decode.decimal_handling != "precise":
        text = (
            f"{decode.decimal_handling} has no effect with decode.schema_registry, because Avro "
            "schemas define decimals; remove it"
        )
        yield Problem("decode.decimal_handling", text)


def _protobuf(decode: ProtobufDecodeConfig) -> Iterator[Problem]:
    """Yield problems of where the types of messages come from."""
    if decode.schema_registry is not None:
        if decode.descriptors is not None:
            text = "has no effect with decode.schema_registry; remove one of them"
            yield Problem("decode.descriptors", text)
        return
    if decode.descriptors is None:
        text = "missing; Protocol Buffers need a registry, or decode.descriptors"
        yield Problem("decode.schema_registry", text)
        return
    if decode.subject is not None:
        yield Problem("decode.subject", "has no effect without decode.schema_registry; remove it")
    if decode.message is None:
        yield Problem("decode.message", "missing; decode.descriptors may declare several messages")
    elif isinstance(found := load_declared(b64decode(decode.descriptors), decode.message), str):
        yield Problem("decode.message", found)


def _without_fields(decode: CsvDecodeConfig | WholeValueConfig, kind: str) -> Iterator[Problem]:
    """Yield problems of settings for fields that have names."""
    for name, default in (("unknown_fields", "ignore"), ("wider_values", "reject")):
        if (value := getattr(decode, name)) != default:
            text = f"{value} has no effect with format {kind}, whose values have no named fields"
            yield Problem(f"decode.{name}", f"{text}; remove it")
    if decode.aliases:
        text = f"has no effect with format {kind}, whose values have no named fields; remove it"
        yield Problem("decode.aliases", text)
    if isinstance(decode, CsvDecodeConfig) and decode.declared_names is None:
        text = "infer cannot be combined with format csv; declare the columns, in their order"
        yield Problem("decode.schema", text)
    if isinstance(decode, WholeValueConfig) and decode.columns != "infer":
        text = f"cannot be combined with format {kind}, whose only column is decode.column"
        yield Problem("decode.schema", f"{text}; remove it")
