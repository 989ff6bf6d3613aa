"""The steps that hide values: ``hash`` keeps them comparable, ``mask`` does not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from transforms.steps.columns import require_columns
from transforms.steps.transform import Transform, Transformed

_HASHED = (pa.types.is_string, pa.types.is_binary, pa.types.is_integer)


@dataclass(frozen=True, slots=True)
class Hash(Transform):
    """Replaces values by the SHA-256 of a salt and the value, as 64 hexadecimal digits.

    Equal values get equal hashes. A text is hashed as UTF-8, an integer as its decimal digits, and
    null stays null.

    Attributes:
        columns: the columns to hash.
        salt: the bytes that are hashed before each value.
    """

    columns: tuple[str, ...]
    salt: bytes = field(repr=False)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See ``Transform``."""
        require_columns(schema, self.columns)
        for name in self.columns:
            kind = schema.field(name).type
            if not any(is_hashed(kind) for is_hashed in _HASHED):
                message = f"column {name!r} is {kind}, which has no single text; cast it to string"
                raise InvalidConfig(message)
        return _as_texts(schema, self.columns)

    def apply(self, rows: pa.Table) -> Transformed:
        """See ``Transform``."""
        return Transformed(rows=_replace(rows, self.columns, self._hash))

    def key_sources(self, column: str, schema: pa.Schema) -> tuple[str, ...]:
        """See ``Transform``."""
        return (column,)

    def _hash(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Hash each distinct value once, because Arrow has no kernel for SHA-256."""
        if pa.types.is_integer(values.type):
            values = values.cast(pa.string())
        salted = hashlib.sha256(self.salt)
        encoded = values.cast(pa.binary()).combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            return pa.chunked_array([], pa.string())
        hashes = []
        for value in encoded.dictionary.to_pylist():
            digest = salted.copy()
            digest.update(value)
            hashes.append(digest.hexdigest())
        return pa.chunked_array([pa.array(hashes, pa.string()).take(encoded.indices)])


@dataclass(frozen=True, slots=True)
class Mask(Transform):
    """Replaces texts by a fixed text, and can keep the last characters. Null stays null.

    Attributes:
        columns: the columns to mask; each must hold text.
        text: the text that replaces the value.
        keep_last: how many characters at the end stay readable. A value that is not at least twice
            as long is replaced completely.
    """

    columns: tuple[str, ...]
    text: str = "***"
    keep_last: int = 0

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See ``Transform``."""
        require_columns(schema, self.columns)
        for name in self.columns:
            if not pa.types.is_string(schema.field(name).type):
                kind = schema.field(name).type
                message = f"column {name!r} is {kind}; only text is masked: cast it to string"
                raise InvalidConfig(message)
        return _as_texts(schema, self.columns)

    def apply(self, rows: pa.Table) -> Transformed:
        """See ``Transform``."""
        return Transformed(rows=_replace(rows, self.columns, self._mask))

    def _mask(self, texts: pa.ChunkedArray) -> pa.ChunkedArray:
        masked = pc.if_else(pc.is_valid(texts), self.text, pa.scalar(None, pa.string()))
        if not self.keep_last:
            return masked
        ends = pc.utf8_slice_codeunits(texts, -self.keep_last)
        is_long = pc.greater_equal(pc.utf8_length(texts), 2 * self.keep_last)
        return pc.if_else(is_long, pc.binary_join_element_wise(masked, ends, ""), masked)

    def key_sources(self, column: str, schema: pa.Schema) -> tuple[str, ...]:
        """See ``Transform``."""
        return (column,)


def _as_texts(schema: pa.Schema, columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([pa.field(f.name, pa.string()) if f.name in columns else f for f in schema])


def _replace(
    rows: pa.Table,
    columns: tuple[str, ...],
    change: Callable[[pa.ChunkedArray], pa.ChunkedArray],
) -> pa.Table:
    for name in columns:
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, pa.field(name, pa.string()), change(rows.column(index)))
    return rows
