"""Values with the schema that Kafka Connect adds to them: ``{"schema": …, "payload": …}``.

``JsonConverter`` writes them unless its setting ``schemas.enable`` is false. The schema is often
longer than the payload, and nearly all values of a topic have the same one. So it is cut off before
a value is decoded, and each distinct text of a schema is read once. The bytes before the payload
are found by patterns in one value; in other values, the same bytes are only compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.decode.decode_result import Indices
from transforms.decode.json_scanner import parse

SCHEMA, PAYLOAD = "schema", "payload"
#: The begin of a value that has its schema.
WITH_SCHEMA = r'^\s*\{\s*"(schema|payload)"\s*:'

#: ``JsonConverter`` writes the schema first. Other programs may sort the members.
_SCHEMA_FIRST = r'^\s*\{\s*"schema"\s*:\s*(\{|null)'
_PAYLOAD_NAME = r'"payload"[ \t\n\f\r]*:'
_AROUND_SCHEMA = r'^\s*\{\s*"schema"\s*:\s*|\s*,\s*$'
_END = r"\s*\}\s*$"
_PAYLOAD_FIRST = (
    r'(?s)^\s*\{\s*"payload"\s*:(?P<payload>.*),'
    r'\s*"schema"\s*:\s*(?P<schema>\{.*\}|null)\s*\}\s*$'
)

#: How many different beginnings of values are compared in a chunk. The patterns find the others.
_MOST_BEGINNINGS = 8
_BEGINNING = re.compile(_PAYLOAD_NAME.encode())
#: The last bytes of a value with the schema first, if nothing is between the payload and its brace.
_PLAIN_END = r"[^\s]\}$"

#: How many texts of schemas are cached.
_CACHED_SCHEMAS = 1024

Schema = Mapping[str, Any]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Payloads:
    """Values without their schemas.

    Attributes:
        values: for each value, its payload; the value itself if it has no schema.
        codes: for each value, the index of its schema; -1 if it has none.
        schemas: the distinct schemas.
    """

    values: pa.ChunkedArray
    codes: Indices
    schemas: Sequence[Schema]


def without_schemas(values: pa.ChunkedArray) -> Payloads:
    """Return JSON values without the schemas that some of them have.

    A value has a schema if its only members are ``schema``, which is a schema of Kafka Connect or
    null, and ``payload``.
    """
    values = values.cast(pa.binary())
    codes = np.full(len(values), -1, np.int64)
    may_have = pc.fill_null(pc.match_substring_regex(values, WITH_SCHEMA), False)
    if not pc.any(may_have).as_py():
        return Payloads(values, codes, ())
    numbers: dict[bytes, int] = {}
    schemas: list[Schema] = []
    chunks, start = [], 0
    for chunk in values.chunks:
        for positions, payloads, texts in _candidates(chunk):
            distinct = texts.dictionary.to_pylist()
            for text in distinct:
                schema = _read_schema(text)
                if schema is not None and text not in numbers:
                    numbers[text] = len(schemas)
                    schemas.append(schema)
            of_texts = np.array([numbers.get(text, -1) for text in distinct], np.int64)
            found = of_texts[texts.indices.to_numpy()]
            codes[start + positions] = found
            chunk = _replaced(chunk, positions, payloads, found >= 0)
        chunks.append(chunk)
        start += len(chunk)
    return Payloads(pa.chunked_array(chunks, pa.binary()), codes, schemas)


def fields_of(schema: Schema, path: Sequence[str]) -> dict[str, Schema]:
    """Return the schemas of the fields of the struct at a path in a schema; none if it has none."""
    fields: dict[str, Schema] = {"": schema}
    for name in ("", *path):
        listed = fields.get(name, {}).get("fields")
        members = listed if isinstance(listed, list) else []
        fields = {str(one.get("field")): one for one in members if isinstance(one, dict)}
    return fields


def _replaced(chunk: pa.Array, positions: Indices, payloads: pa.Array, is_kept: Mask) -> pa.Array:
    """Return values, with the payloads of some in their place."""
    if not is_kept.all():
        positions, payloads = positions[is_kept], payloads.filter(pa.array(is_kept))
    if len(positions) == len(chunk):
        return payloads
    mask = np.zeros(len(chunk), np.bool_)
    mask[positions] = True
    return pc.replace_with_mask(chunk, pa.array(mask), payloads)


def _candidates(chunk: pa.Array) -> Iterator[tuple[Indices, pa.Array, pa.DictionaryArray]]:
    """Yield the positions of values that may have a schema, their payloads and their schemas."""
    is_first = _to_mask(pc.match_substring_regex(chunk, _SCHEMA_FIRST))
    remaining = is_first.copy()
    for positions, payloads, texts in _with_equal_beginnings(chunk, is_first):
        remaining[positions] = False
        yield positions, payloads, texts
    first = np.flatnonzero(remaining)
    if len(first):
        parts = pc.split_pattern_regex(chunk.take(pa.array(first)), _PAYLOAD_NAME, max_splits=1)
        has_payload = pc.equal(pc.list_value_length(parts), 2)
        halves = parts.filter(has_payload).flatten()
        numbers = pa.array(np.arange(0, len(halves), 2))
        heads, tails = halves.take(numbers), halves.take(pc.add(numbers, 1))
        heads = pc.replace_substring_regex(heads, _AROUND_SCHEMA, "")
        positions = first[has_payload.to_numpy(zero_copy_only=False)]
        tails = pc.replace_substring_regex(tails, _END, "")
        yield positions, tails, heads.dictionary_encode()
    if is_first.all():
        return
    others = np.flatnonzero(~is_first)
    found = pc.extract_regex(chunk.take(pa.array(others)), _PAYLOAD_FIRST)
    is_found = found.is_valid()
    if pc.any(is_found).as_py():
        matched = found.filter(is_found)
        schemas = pc.struct_field(matched, SCHEMA).dictionary_encode()
        positions = others[is_found.to_numpy(zero_copy_only=False)]
        yield positions, pc.struct_field(matched, PAYLOAD), schemas


def _with_equal_beginnings(
    chunk: pa.Array, is_first: Mask
) -> Iterator[tuple[Indices, pa.Array, pa.DictionaryArray]]:
    """Yield the values whose bytes up to the payload equal those of one of the first values.

    Args:
        chunk: the values.
        is_first: which values begin with a schema.
    """
    last_bytes = pc.binary_slice(chunk, -2)
    remaining = is_first & _to_mask(pc.match_substring_regex(last_bytes, _PLAIN_END))
    for _ in range(_MOST_BEGINNINGS):
        if not remaining.any():
            return
        found = _BEGINNING.search(chunk[int(remaining.argmax())].as_py())
        if found is None:
            return  # the patterns decide about the others
        beginning = found.string[: found.end()]
        equal = remaining & _to_mask(pc.starts_with(chunk, beginning))
        remaining &= ~equal
        positions = np.flatnonzero(equal)
        values = chunk if len(positions) == len(chunk) else chunk.take(pa.array(positions))
        head = pa.array([found.string[: found.start()]], pa.binary())
        head = pc.replace_substring_regex(head, _AROUND_SCHEMA, "")
        numbers = pa.array(np.zeros(len(positions), np.int32))
        texts = pa.DictionaryArray.from_arrays(numbers, head)
        yield positions, pc.binary_slice(values, len(beginning), -1), texts


def _to_mask(booleans: pa.Array) -> Mask:
    mask: Mask = pc.fill_null(booleans, False).to_numpy(zero_copy_only=False)
    return mask


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _read_schema(text: bytes) -> Schema | None:
    """Return a schema of Kafka Connect, empty for null; None if the text is none."""
    try:
        schema = parse(text.decode())
    except (ValueError, RecursionError):
        return None
    if schema is None:
        return {}
    is_schema = isinstance(schema, dict) and (not schema or isinstance(schema.get("type"), str))
    return schema if isinstance(schema, dict) and is_schema else None
