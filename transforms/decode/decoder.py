"""The interface of all decoders of Kafka values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.schema.evolution import Path, Proposal
from transforms.decode.decode_result import DecodeResult
from transforms.decode.schema_policy import SchemaPolicy, UnknownFields

#: The unit of integers in timestamp columns, which count from 1970.
EpochUnit = Literal["s", "ms", "us", "ns"]

_STRICT = SchemaPolicy()


@dataclass(frozen=True, slots=True)
class ColumnDecoder(ABC):
    """Decodes columns of bytes. A decoder contains only configuration, so it can be pickled.

    Attributes:
        schema: the columns to fill.
        rescue_column: the name of a string column, after all other columns, for the values that the
            policy rescues. They are stored as one JSON object, or null if there are none.
        epoch_unit: the unit of timestamps that are integers.
        policy: how unknown fields and wider values are handled, and the aliases of columns.

    Raises:
        InvalidConfig: a type is not supported, the rescue column has the name of another column, or
            an alias is itself a column or has no column.
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
        """How unknown fields are handled; the default depends on the rescue column."""
        default: UnknownFields = "ignore" if self.rescue_column is None else "rescue"
        return self.policy.unknown_fields or default

    @property
    def rows_schema(self) -> pa.Schema:
        """The schema of decoded rows: the declared columns, then the rescue column, if any."""
        if self.rescue_column is None:
            return self.schema
        return self.schema.append(pa.field(self.rescue_column, pa.string()))

    @property
    def identity(self) -> str | None:
        """A text that two decoders share only if they decode all values to the same rows.

        None if the rows may depend on more than the columns, so that no decoders are the same.
        """
        return None

    def is_decodable(self, data_type: pa.DataType) -> bool:
        """Return whether the decoder supports a column type."""
        try:
            self.check_type("", data_type)
        except InvalidConfig:
            return False
        return True

    @abstractmethod
    def check_type(self, path: str, data_type: pa.DataType) -> None:
        """Check that the decoder supports a column type.

        Args:
            path: the path of the column, for the error.
            data_type: the type of the column.

        Raises:
            InvalidConfig: the type is not supported.
        """

    @abstractmethod
    def decode(self, values: pa.Array | pa.ChunkedArray) -> DecodeResult:
        """Decode a ``binary`` column. Invalid values are rejected and cause no errors.

        Null and empty values are also rejected.
        """

    def decode_records(
        self, values: pa.ChunkedArray, keys: pa.Array | pa.ChunkedArray
    ) -> DecodeResult:
        """Decode the values of records. Only some events need the keys, a ``binary`` column."""
        return self.decode(values)

    def schema_ids(self, values: pa.ChunkedArray) -> pa.Array | None:
        """Return the id of each value's schema in a registry, an integer or null.

        None means that values of this kind have no ids.
        """
        return None

    @abstractmethod
    def propose_columns(self, values: pa.Array | pa.ChunkedArray) -> Proposal:
        """Return the schema changes that values request, see ``DecodeResult.requesting``.

        If the values request more columns than a table may have, the result may lack some of them.
        But even then it has more columns than a table may have.
        """

    @abstractmethod
    def find_wider_paths(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """Return the paths of numbers that would only fit a wider type than their column's."""
