"""The formats of values, each with its own section ``decode``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from streamer.config.change_events import (
    CanalDecodeConfig,
    ConnectDecodeConfig,
    DebeziumDecodeConfig,
    DmsDecodeConfig,
    MaxwellDecodeConfig,
)
from streamer.config.columns import ColumnsDecodeConfig
from streamer.config.decode import AvroDecodeConfig, JsonDecodeConfig
from streamer.config.plain_values import BytesDecodeConfig, CsvDecodeConfig, TextDecodeConfig
from streamer.config.schema_formats import JsonSchemaDecodeConfig, ProtobufDecodeConfig

#: The ``decode`` section of one of the formats.
AnyDecodeConfig = Annotated[
    JsonDecodeConfig
    | AvroDecodeConfig
    | ProtobufDecodeConfig
    | JsonSchemaDecodeConfig
    | DebeziumDecodeConfig
    | MaxwellDecodeConfig
    | CanalDecodeConfig
    | DmsDecodeConfig
    | ConnectDecodeConfig
    | CsvDecodeConfig
    | TextDecodeConfig
    | BytesDecodeConfig
    | ColumnsDecodeConfig,
    Field(discriminator="format"),
]
