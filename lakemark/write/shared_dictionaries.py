"""Replaces dictionary-encoded columns by numbers in dictionaries that many tables share."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.schema.dictionaries import decode_texts, is_encoded

#: Arrow bytes of the texts of a dictionary, as in the Parquet files that lakemark writes. A larger
#: one would save little time, because it exceeds the caches of a processor.
_MAX_BYTES = 128 << 10

#: The longest text of a dictionary. It limits how much larger rows become when their column gets
#: plain texts: the rows of a few megabytes of numbers still fit into one Arrow array.
_MAX_TEXT_BYTES = 1 << 10

_NUMBERS = pa.int32()


class SharedDictionaries:
    """Dictionaries of columns of texts, which grow with each table.

    The columns are those that are dictionary-encoded in the first table. If the texts of a
    dictionary become too large, or one of them is long, the column has plain texts from then on.
    """

    def __init__(self, plain: Collection[str] = ()) -> None:
        """Create no dictionary yet.

        Args:
            plain: columns that never get a dictionary.
        """
        self._plain = plain
        self._texts: dict[str, pa.Array] | None = None
        self._given_up: dict[str, pa.Array] = {}

    def encode(self, rows: pa.Table) -> pa.Table:
        """Return rows with numbers or plain texts instead of dictionary-encoded columns."""
        if self._texts is None:
            names = (field.name for field in rows.schema if is_encoded(field.type))
            self._texts = {
                name: pa.array([], rows.schema.field(name).type.value_type)
                for name in names
                if name not in self._plain
            }
        for at, name in enumerate(rows.column_names):
            column = rows.column(at)
            if name in self._texts or is_encoded(column.type):
                rows = rows.set_column(at, name, self._encode(name, column))
        return rows

    def update(self, rows: pa.Table) -> pa.Table:
        """Return rows that ``encode`` returned earlier, as it would return them now."""
        for name, texts in self._given_up.items():
            at = rows.schema.get_field_index(name)
            if at >= 0 and rows.schema.field(at).type == _NUMBERS:
                rows = rows.set_column(at, name, texts.take(rows.column(at)))
        return rows

    def decode(self, rows: pa.Table) -> pa.Table:
        """Return rows that ``update`` returned, with dictionary-encoded columns."""
        for name, texts in (self._texts or {}).items():
            at = rows.schema.get_field_index(name)
            if at >= 0:
                chunks = rows.column(at).chunks
                encoded = [pa.DictionaryArray.from_arrays(chunk, texts) for chunk in chunks]
                kind = pa.dictionary(_NUMBERS, texts.type)
                rows = rows.set_column(at, name, pa.chunked_array(encoded, kind))
        return rows

    def _encode(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        assert self._texts is not None
        if name not in self._texts:
            return decode_texts(column) if is_encoded(column.type) else column
        encoded = column if is_encoded(column.type) else column.dictionary_encode()
        known = pa.DictionaryArray.from_arrays(pa.array([], _NUMBERS), self._texts[name])
        # Texts keep their numbers, because those of the first chunk get the first numbers.
        first, *others = pa.chunked_array([known, *encoded.chunks]).unify_dictionaries().chunks
        if _is_large(first.dictionary):
            self._given_up[name] = self._texts.pop(name)
            return self._encode(name, encoded)
        self._texts[name] = first.dictionary
        return pa.chunked_array([chunk.indices for chunk in others], _NUMBERS)


def _is_large(texts: pa.Array) -> bool:
    longest: int | None = pc.max(pc.binary_length(texts)).as_py()
    return texts.nbytes > _MAX_BYTES or (longest or 0) > _MAX_TEXT_BYTES
