"""Checks ``transform`` together with the other sections of a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.model.meta_columns import OPERATION
from streamer.config.any_source import AnySource
from streamer.config.decode import DecodeConfig
from streamer.config.errors import Problem
from streamer.config.table import TableConfig
from streamer.config.transform import AnyStep, build_chain
from transforms.steps.chain import InvalidStep, TransformChain

#: The values of settings that would change the columns of a table during a run, or that say which
#: fields of a record are absent. What they mean after a transform is not defined.
_UNCLEAR = (("unknown_fields", ("evolve",)), ("wider_values", ("evolve", "fail")))


def row_columns(decode: DecodeConfig, steps: Sequence[AnyStep]) -> pa.Schema | None:
    """Return the declared columns, or those after the transforms.

    Returns:
        None if the columns are inferred, or if a declaration or a step is not valid.
    """
    try:
        columns = decoded_columns(decode)
        chain = None if columns is None else build_chain(steps, columns, with_secrets=False)
        return decode.declared() if chain is None else chain.schema
    except InvalidConfig:
        return None


def decoded_columns(decode: DecodeConfig) -> pa.Schema | None:
    """Return the declared columns and the rescue column; None if the columns are inferred.

    Raises:
        InvalidConfig: a declaration is not valid.
    """
    declared = decode.declared()
    if declared is None or decode.rescue_column is None:
        return declared
    return declared.append(pa.field(decode.rescue_column, pa.string()))


def find_transform_problems(
    source: AnySource, decode: DecodeConfig, table: TableConfig, steps: Sequence[AnyStep]
) -> Iterator[Problem]:
    """Yield a problem for each step that cannot run, and for each setting that excludes steps."""
    if not steps:
        return
    for name, values in _UNCLEAR:
        if (value := getattr(decode, name)) in values:
            text = f"{value} cannot be combined with transform; choose another value"
            yield Problem(f"decode.{name}", text)
    if table.partial_update == "absent_fields":
        text = "absent_fields cannot be combined with transform; remove one of them"
        yield Problem("table.partial_update", text)
    try:
        columns = decoded_columns(decode)
        if columns is None:
            text = "infer cannot be combined with transform; declare the columns of the records"
            yield Problem("decode.schema", text)
            return
        chain = build_chain(steps, columns, with_secrets=False)
    except InvalidStep as error:
        yield Problem(error.step, error.reason)
        return
    except InvalidConfig:  # decode.schema is not valid, which another check reports
        return
    assert chain is not None, steps
    yield from _output_problems(source, table, chain)
    if decode.tombstones != "ignore" and not table.inserts:
        yield from _key_problems(decode, table, chain)


def _output_problems(
    source: AnySource, table: TableConfig, chain: TransformChain
) -> Iterator[Problem]:
    """Yield problems of the columns after the last step."""
    last = chain.steps[-1].name
    headers = {one.name for one in source.headers}
    for name in (one.name for one in source.record_columns):
        if name in chain.schema.names:
            setting = "header_columns" if name in headers else "metadata_columns"
            yield Problem(last, f"column {name!r} is added by source.{setting}; drop it")
    if OPERATION in chain.input_schema.names and OPERATION not in chain.schema.names:
        text = (
            f"column {OPERATION!r} marks deletes, but the steps remove it; keep it, or remove it "
            "from decode.schema"
        )
        yield Problem(last, text)


def _key_problems(
    decode: DecodeConfig, table: TableConfig, chain: TransformChain
) -> Iterator[Problem]:
    """Yield problems of key columns that cannot be computed from the key of a tombstone."""
    fields: dict[str, None] = {}
    # A pipeline that moves rows finds the row of a tombstone by its record key alone.
    partition = () if table.moves_rows else table.partition_columns
    for name in (*table.record_key, *partition):
        try:
            fields |= dict.fromkeys(chain.key_sources(name))
        except InvalidStep as error:
            yield Problem(error.step, error.reason)
            return
    if decode.tombstone_key == "raw" and len(fields) != 1:
        text = (
            "raw is one value, but the record key is computed from "
            f"{', '.join(fields) or 'no column'}; use json, or set decode.tombstones: ignore"
        )
        yield Problem("decode.tombstone_key", text)
