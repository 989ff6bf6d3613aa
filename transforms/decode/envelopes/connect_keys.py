"""Kafka keys that Kafka Connect wrote with their schema: ``{"schema": …, "payload": key}``."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from transforms.decode.envelopes.connect_schemas import PAYLOAD, WITH_SCHEMA
from transforms.decode.json_scanner import find_members, parse


def without_schema(keys: pa.Array, *, as_text: bool) -> pa.Array:
    """Return keys without the schemas that some of them have.

    Args:
        keys: a ``binary`` column.
        as_text: whether a key is the text of a single value, and not JSON.
    """
    has_schema = pc.fill_null(pc.match_substring_regex(keys, WITH_SCHEMA), False)
    if not pc.any(has_schema).as_py():
        return keys
    unwrapped = [_payload(key, as_text=as_text) for key in keys.filter(has_schema).to_pylist()]
    return pc.replace_with_mask(keys, has_schema, pa.array(unwrapped, pa.binary()))


def _payload(key: bytes, *, as_text: bool) -> bytes:
    """Return the payload of a key, as it is written; the whole key if it has none."""
    try:
        text = key.decode()
        value = parse(text)
        spans = {name: text[begin:end] for name, begin, end in find_members(text, text.index("{"))}
    except (ValueError, RecursionError):
        return key
    if PAYLOAD not in spans or not isinstance(value, dict):
        return key
    payload = value[PAYLOAD]
    return (payload if as_text and isinstance(payload, str) else spans[PAYLOAD]).encode()
