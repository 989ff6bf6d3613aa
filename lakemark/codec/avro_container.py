"""Reads and writes Avro object containers of one record, the format of plans and commit metadata.

    4 bytes   "Obj", 1
    map       "avro.schema" -> the schema as JSON; no "avro.codec", so nothing is compressed
    16 bytes  sync marker
    long      number of records in the block, 1
    long      size of the record in bytes, then the record
    16 bytes  sync marker

``fastavro`` reads containers and writes the record. This module writes everything around the
record, because ``fastavro.writer`` chooses a random sync marker. Here the marker is a digest of
schema and record, so that two attempts to write one record write the same bytes.
Source: Avro 1.11, "Object Container Files"; ``TimelineMetadataUtils`` of Apache Hudi 1.2.0, whose
schemas are in ``avro_schemas/``.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib.resources import files
from io import BytesIO
from itertools import islice

import fastavro
from fastavro.types import Schema

from lakemark.codec.avro_bounds import check_bounded
from lakemark.codec.varint import zigzag
from lakemark.errors import CorruptData

MAGIC = b"Obj\x01"


def load_schema(name: str) -> dict[str, object]:
    """Return a complete schema of Apache Hudi, such as ``HoodieCommitMetadata``.

    Raises:
        FileNotFoundError: there is no schema of that name.
    """
    schema: dict[str, object] = json.loads(_schema_text(name))
    return schema


def encode(schema_name: str, record: dict[str, object]) -> bytes:
    """Encode a record as a container; missing fields get the defaults of the schema.

    Raises:
        ValueError: the record has a field that the schema lacks, or a value of another type.
    """
    body = BytesIO()
    fastavro.schemaless_writer(body, _parsed(schema_name), record, strict_allow_default=True)
    datum = body.getvalue()
    header = _header(schema_name)
    sync = hashlib.md5(header + datum, usedforsecurity=False).digest()
    return header + sync + zigzag(1) + _bytes(datum) + sync


def decode(data: bytes, path: str) -> dict[str, object]:
    """Decode the record of a container, using the schema that the container stores.

    Raises:
        CorruptData: ``data`` is not a container of exactly one record.
    """
    try:
        reader = fastavro.reader(BytesIO(data))
        check_bounded(reader.writer_schema, path)
        records = list(islice(reader, 2))
    except CorruptData:
        raise
    except Exception as error:  # damaged bytes can cause any error in the decoder
        reason = f"{type(error).__name__}: {error}"[:200]
        raise CorruptData(path, None, "an Avro object container", reason) from error
    if len(records) != 1 or not isinstance(records[0], dict):
        found = "none" if not records else "several" if len(records) > 1 else "another value"
        raise CorruptData(path, None, "a container of one record", found)
    return records[0]


@cache
def _schema_text(name: str) -> str:
    return (files("lakemark.codec") / "avro_schemas" / f"{name}.avsc").read_text("utf-8")


@cache
def _parsed(name: str) -> Schema:
    return fastavro.parse_schema(load_schema(name))


@cache
def _header(schema_name: str) -> bytes:
    schema = json.dumps(load_schema(schema_name), separators=(",", ":")).encode()
    return MAGIC + zigzag(1) + _bytes(b"avro.schema") + _bytes(schema) + zigzag(0)


def _bytes(value: bytes) -> bytes:
    return zigzag(len(value)) + value
