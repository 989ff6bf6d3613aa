"""Finds the record keys that a condition demands: each matching row has one of them.

``id in ('a', 'b') and v > 3`` demands two keys of a table whose record key is ``id``. If the record
key has several fields, the condition must demand values of all of them. ``_hoodie_record_key =
'id:a,n:7'`` demands a key of any table that stores meta columns.

A key is demanded only if its text is certain. Texts and integers have one text in a record key, and
so have decimals of one scale. Apache Hudi 1.2.0 writes other types in several ways: for example, a
timestamp is a number or a time of day, depending on the writer and on its settings, and a date is a
number if Flink writes it. A condition on such a field demands no keys.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import product
from math import prod

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.read.demanded_values import DemandedValues

#: If a condition demands more keys, files are not skipped by key, because most files have one.
MAX_KEYS = 10_000


def demanded_keys(
    values: DemandedValues, columns: pa.Schema, config: KeyGeneratorConfig | None
) -> pa.Array | None:
    """Return the record keys that a condition demands; None if it may match rows of other keys.

    Some of the keys may belong to no row. If the record key has two possible encodings
    (``KeyGeneratorConfig.has_lone_complex_key``), both are returned.

    Args:
        values: the values that the condition demands.
        columns: the columns of the table.
        config: the settings of record keys; None if keys are not computed from the columns.
    """
    if RECORD_KEY in values and RECORD_KEY in columns.names:
        return _known_texts(values[RECORD_KEY], pa.string())
    if config is None or config.has_automatic_keys:
        return None
    fields = config.record_key_fields
    if any(name not in values or name not in columns.names for name in fields):
        return None
    if prod(len(values[name]) for name in fields) > MAX_KEYS:
        return None
    known = [_known_texts(values[name], columns.field(name).type) for name in fields]
    return _keys_of(fields, [one for one in known if one is not None], config)


def _keys_of(
    fields: Sequence[str], known: Sequence[pa.Array], config: KeyGeneratorConfig
) -> pa.Array | None:
    """Return the keys of all combinations of values; None if a key is not certain.

    Args:
        fields: the fields of the record key.
        known: the texts of the values of each field, for the fields where they are certain.
        config: the settings of record keys.
    """
    if len(known) < len(fields):
        return None
    rows = list(product(*(texts.to_pylist() for texts in known)))
    table = pa.table({n: pa.array([r[i] for r in rows], pa.string()) for i, n in enumerate(fields)})
    made = [KeyGenerator(config).record_keys(table)]
    if config.has_lone_complex_key:
        other = replace(config, bare_lone_key=not config.bare_lone_key)
        made.append(KeyGenerator(other).record_keys(table))
    is_certain = not pc.any(KeyGenerator(config).find_ambiguous_keys(table)).as_py()
    keys = pa.concat_arrays(made)
    return pc.unique(keys) if is_certain and not keys.null_count else None


def _known_texts(values: Collection[object], kind: pa.DataType) -> pa.Array | None:
    """Return the texts of values in record keys; None if one of them is not certain.

    Args:
        values: values that are compared with a column; None is a null.
        kind: the type of the column.
    """
    wanted = _python_type(kind)
    if len(values) > MAX_KEYS or any(type(value) is not wanted for value in values):
        return None
    try:
        texts = pa.array(list(values), kind).cast(pa.string())
    except (pa.ArrowException, OverflowError):  # a number that the column cannot contain
        return None
    # Java and Flink write decimals with an exponent differently.
    has_exponent = wanted is Decimal and pc.any(pc.match_substring(texts, "E")).as_py()
    return None if has_exponent else texts


def _python_type(kind: pa.DataType) -> type | None:
    """Return the Python type of values whose text in a record key is certain; None if none is."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return str
    if pa.types.is_integer(kind):
        return int
    return Decimal if pa.types.is_decimal(kind) else None
