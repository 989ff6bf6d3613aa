"""What every decoder of Kafka values has in common: its columns, and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.schema.evolution import Path, Proposal
from transforms.decode.decode_result import DecodeResult
from transforms.decode.schema_policy import SchemaPolicy, UnknownFields

#: What an integer counts from 1970 where a timestamp is wanted.
EpochUnit = Literal["s", "ms", "us", "ns"]

_STRICT = SchemaPolicy()


@dataclass(frozen=True, slots=True)
class ColumnDecoder(ABC):
    """Decodes columns of bytes; holds only its configuration, so it pickles.

    Attributes:
        schema: columns to fill.
        rescue_column: name of a string column, after the others, that keeps what the policy
            rescues of a record as one JSON object (null when there is nothing).
        epoch_unit: unit of timestamps that are integers.
        policy: what happens to unknown fields and wider values; and the aliases of columns.

    Raises:
        InvalidConfig: a type that is not decoded to, a rescue column named as another, an alias
            that is a column or stands for none.
    """

    schema: pa.Schema
    rescue_column: str | None = None
    epoch_unit: EpochUnit = "ms"
    policy: SchemaPolicy = _STRICT

    def __post_init__(self) -> None:
        for field in self.schema:
            self.check_type(field.name, field.type)
        if self.rescue_column in self.schema.names:
            message = f"rescue column {self.rescue_column!r} is a declared column; rename it"
            raise InvalidConfig(message)
        self.policy.with_aliases(self.schema)

    @property
    def unknown_fields(self) -> UnknownFields:
        """What happens to unknown fields."""
        default: UnknownFields = "ignore" if self.rescue_column is None else "rescue"
        return self.policy.unknown_fields or default

    @property
    def rows_schema(self) -> pa.Schema:
        """Schema of decoded rows: the declared columns, then the rescue column if there is one."""
        if self.rescue_column is None:
            return self.schema
        return self.schema.append(pa.field(self.rescue_column, pa.string()))

    @classmethod
    def is_decodable(cls, data_type: pa.DataType) -> bool:
        """Whether records are decoded to a type."""
        try:
            cls.check_type("", data_type)
        except InvalidConfig:
            return False
        return True

    @classmethod
    @abstractmethod
    def check_type(cls, path: str, data_type: pa.DataType) -> None:
        """Pass when records are decoded to a type.

        Args:
            path: of the column, for the error.
            data_type: of the column.

        Raises:
            InvalidConfig: they are not.
        """

    @abstractmethod
    def decode(self, values: pa.Array | pa.ChunkedArray) -> DecodeResult:
        """Decode a ``binary`` column; never fails on what is in it.

        Null values are rejected like empty ones.
        """

    @abstractmethod
    def propose_columns(self, values: pa.Array | pa.ChunkedArray) -> Proposal:
        """What the schema must become to hold values that ask, see ``DecodeResult.requesting``.

        Of more columns than a table should have, enough to see that.
        """

    @abstractmethod
    def find_wider_paths(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """The places where values hold numbers that would fit a wider type than their column's."""
