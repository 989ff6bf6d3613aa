"""Structs of Thrift's compact protocol keep their bytes when they are read and written."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.codec.thrift_compact import Field, Items, Kind, Struct, parse_struct, print_struct

_INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
_scalars: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.I8: st.integers(0, 255),
    Kind.I16: st.integers(-(1 << 15), (1 << 15) - 1),
    Kind.I32: st.integers(-(1 << 31), (1 << 31) - 1),
    Kind.I64: _INTEGERS,
    Kind.DOUBLE: st.binary(min_size=8, max_size=8),
    Kind.BINARY: st.binary(max_size=200),
}


def _fields(inner: st.SearchStrategy[Struct]) -> st.SearchStrategy[Field]:
    def items(kind: Kind) -> st.SearchStrategy[Field]:
        values = inner if kind is Kind.STRUCT else _scalars[kind]
        return st.lists(values, max_size=20).map(lambda v: Field(Kind.LIST, Items(kind, v)))

    scalars = [st.builds(Field, st.just(kind), values) for kind, values in _scalars.items()]
    flags = [st.just(Field(Kind.TRUE, True)), st.just(Field(Kind.FALSE, False))]
    lists = st.sampled_from([*_scalars, Kind.STRUCT]).flatmap(items)
    return st.one_of(*scalars, *flags, lists, inner.map(lambda v: Field(Kind.STRUCT, v)))


def _structs() -> st.SearchStrategy[Struct]:
    numbers = st.integers(-100, 100)
    leaf = st.dictionaries(numbers, _fields(st.just({})), max_size=3)
    return st.recursive(leaf, lambda one: st.dictionaries(numbers, _fields(one), max_size=4))


@given(_structs(), st.binary(max_size=3))
def test_structs_are_read_as_they_were_written(fields: Struct, rest: bytes) -> None:
    content = print_struct(fields)
    assert parse_struct(content + rest) == fields
    assert list(parse_struct(content)) == list(fields)


@given(_structs(), st.data())
def test_a_struct_that_ends_too_early_is_refused(fields: Struct, data: st.DataObject) -> None:
    content = print_struct(fields)
    length = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(ValueError, match="too early"):
        parse_struct(content[:length])


def test_the_footer_of_a_parquet_file_keeps_its_bytes() -> None:
    sink = io.BytesIO()
    table = pa.table({"a": [1, None, 3], "b": [["x"], [], None], "c": [True, False, None]})
    pq.write_table(table, sink, write_page_index=True)
    content = sink.getvalue()
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") : -8]
    assert print_struct(parse_struct(footer)) == footer
