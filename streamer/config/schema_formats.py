"""``decode`` of Protocol Buffers, and of JSON whose schema is in a registry."""

from __future__ import annotations

import logging
from base64 import b64decode
from collections.abc import Sequence
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field, field_validator

from lakemark.errors import InvalidConfig
from streamer.config.decode import RegistryDecodeConfig, WriterSchemaDecodeConfig
from streamer.config.schema_registry import SchemaRegistryConfig
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.json_schema import JsonSchemaDecoder
from transforms.decode.json_schema_types import find_columns
from transforms.decode.protobuf.decoder import ProtobufDecoder
from transforms.decode.protobuf.framing import (
    DeclaredMessage,
    MessageFraming,
    RegistryMessage,
    WriterMessage,
    load_declared,
    load_stored,
)
from transforms.decode.schema_differences import column_types

_LOG = logging.getLogger(__name__)

#: The first message of a schema.
_FIRST_MESSAGE = (0,)


class ProtobufDecodeConfig(WriterSchemaDecodeConfig):
    """Protocol Buffers. Each value is one message.

    With ``schema_registry``, each value is in Confluent's wire format: its schema's id and the
    indexes of its message come first. With ``descriptors``, each value is only a ``message``. One
    of the two is required. These settings are added to those of ``decode``. See [Protocol
    Buffers](protobuf.md).
    """

    format: Literal["protobuf"]
    """The format of the values."""

    descriptors: Annotated[str, Field(min_length=1)] | None = None
    """The types of values without a registry: ``{file: PATH}`` names a file that ``protoc
    --include_imports --descriptor_set_out=PATH`` wrote. PATH is a URL, or a path relative to the
    folder of the pipeline file. The file is read when the pipeline file is loaded."""

    message: Annotated[str, Field(min_length=1)] | None = None
    """The full name of a message, such as ``shop.v1.Order``. With ``descriptors``, it is the type
    of all values. With ``schema_registry``, it is the message of the newest schema that gives a new
    table its columns; default: the first message of the schema."""

    @field_validator("descriptors")
    @classmethod
    def _check_descriptors(cls, text: str | None) -> str | None:
        try:
            b64decode(text or "", validate=True)
        except ValueError:
            message = "expected {file: PATH}"
            raise ValueError(message) from None
        return text

    def decoder(self, columns: pa.Schema, key_columns: Sequence[str] = ()) -> ColumnDecoder:
        """See ``DecodeConfig``."""
        return ProtobufDecoder(
            columns,
            *self.shared_arguments(),
            framing=self.framing(),
            record_limit_bytes=self.record_limit_bytes,
        )

    def framing(self) -> MessageFraming:
        """Return how to find the type of a value.

        Raises:
            ConfigError: a secret cannot be found.
        """
        if self.schema_registry is not None:
            registry = self.schema_registry.registry("PROTOBUF")
            return RegistryMessage(registry, self.unknown_schema == "fail")
        return DeclaredMessage(b64decode(self.descriptors or ""), self.message or "")

    def newest_columns(self, topic: str) -> pa.Schema:
        """See ``DecodeConfig``."""
        return column_types(self.newest_message(topic).type.arrow)

    def newest_message(self, topic: str) -> WriterMessage:
        """Return the type from which a new table gets its columns.

        Raises:
            InvalidConfig: the type cannot become columns.
            RegistryError: the registry does not return the schema.
        """
        if self.schema_registry is None:
            found = load_declared(b64decode(self.descriptors or ""), self.message or "")
        else:
            subject = self.subject_of(topic)
            stored = self.schema_registry.registry("PROTOBUF").latest(subject)
            name = f"the newest schema of subject {subject}"
            found = load_stored(name, stored, self.message or _FIRST_MESSAGE)
        if isinstance(found, str):
            raise InvalidConfig(found)
        return found


class JsonSchemaDecodeConfig(RegistryDecodeConfig):
    """JSON whose schema is in a registry. Each value is the id of its schema and a JSON object.

    The schema gives new columns their types. The values are decoded as with ``format: json``, and
    are not validated against the schema. These settings are added to those of ``decode``. See [JSON
    Schema](formats.md#json-schema).
    """

    format: Literal["json_schema"]
    """The format of the values."""

    schema_registry: SchemaRegistryConfig
    """The registry that contains the schemas of the values."""

    def decoder(self, columns: pa.Schema, key_columns: Sequence[str] = ()) -> ColumnDecoder:
        """See ``DecodeConfig``."""
        return JsonSchemaDecoder(
            columns,
            *self.shared_arguments(),
            registry=self.schema_registry.registry("JSON"),
        )

    def newest_columns(self, topic: str) -> pa.Schema:
        """See ``DecodeConfig``."""
        subject = self.subject_of(topic)
        stored = self.schema_registry.registry("JSON").latest(subject)
        columns, omitted = find_columns(stored)
        if omitted:
            _LOG.warning(
                "omitted from the columns, because no column can have their types or names: %s; "
                "declare them in decode.schema, or they are treated as unknown fields "
                "(decode.unknown_fields: %s)",
                ", ".join(omitted),
                self.unknown_fields,
            )
        if not len(columns):
            message = (
                f"the newest schema of subject {subject} declares no property with a type that a "
                "column can have; declare decode.schema"
            )
            raise InvalidConfig(message)
        return columns
