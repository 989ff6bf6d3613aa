"""``decode`` of values whose fields have no names: text, bytes and lines of CSV."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field

from streamer.config.decode import DecodeConfig
from transforms.decode.csv import CsvDecoder
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.whole_values import WholeValueDecoder


class WholeValueConfig(DecodeConfig):
    """Settings of values that are not divided into fields."""

    column: Annotated[str, Field(min_length=1)] = "value"
    """The column that contains the values. It is the only column of the records."""

    @property
    @abstractmethod
    def column_type(self) -> pa.DataType:
        """The type of the column."""

    @property
    def declared_names(self) -> frozenset[str]:
        """See ``DecodeConfig``."""
        return frozenset((self.column,))

    def declared(self) -> pa.Schema:
        """See ``DecodeConfig``."""
        return pa.schema([(self.column, self.column_type)])

    def decoder(self, columns: pa.Schema, key_columns: Sequence[str] = ()) -> ColumnDecoder:
        """See ``DecodeConfig``."""
        return WholeValueDecoder(columns, column=self.column)


class TextDecodeConfig(WholeValueConfig):
    """Text. Each value, which must be UTF-8, fills one column of type ``string``.

    These settings are added to those of ``decode``. ``decode.tombstones`` is ``ignore`` by default.
    """

    format: Literal["text"]
    """The format of the values."""

    @property
    def column_type(self) -> pa.DataType:
        """See ``WholeValueConfig``."""
        return pa.string()


class BytesDecodeConfig(WholeValueConfig):
    """Bytes. Each value, unchanged, fills one column of type ``binary``.

    These settings are added to those of ``decode``. ``decode.tombstones`` is ``ignore`` by default.
    """

    format: Literal["bytes"]
    """The format of the values."""

    @property
    def column_type(self) -> pa.DataType:
        """See ``WholeValueConfig``."""
        return pa.binary()


class CsvDecodeConfig(DecodeConfig):
    """CSV. Each value is one line without a header.

    ``decode.schema`` declares the columns in the order of the line. Numbers, booleans (``true``,
    ``false``, 1, 0), dates (``yyyy-MM-dd``) and timestamps (ISO-8601) are parsed. A line with
    another number of fields goes to the dead letters. Structs, arrays and binary columns are not
    accepted. These settings are added to those of ``decode``.
    """

    format: Literal["csv"]
    """The format of the values."""

    delimiter: Annotated[str, Field(pattern=r"^[^\r\n\"\x80-\U0010ffff]$")] = ","
    """The character between two fields. A field in quotation marks may contain it, and contains a
    quotation mark as two."""

    null_text: str = ""
    """The text of a field that is null, unless it is in quotation marks."""

    def decoder(self, columns: pa.Schema, key_columns: Sequence[str] = ()) -> ColumnDecoder:
        """See ``DecodeConfig``."""
        return CsvDecoder(
            columns,
            epoch_unit=self.timestamp_unit,
            fields=tuple(self.columns),
            delimiter=self.delimiter,
            null_text=self.null_text,
        )
