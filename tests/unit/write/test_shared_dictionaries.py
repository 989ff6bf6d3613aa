"""Tables that share dictionaries keep their texts, whatever arrives and however large they grow."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.schema import dictionaries
from lakemark.schema.dictionaries import ENCODED_TEXTS, decode
from lakemark.write import shared_dictionaries
from lakemark.write.shared_dictionaries import SharedDictionaries
from tests.depth import examples

Texts: TypeAlias = list[str | None]
#: The texts of a table, and whether each of its columns is dictionary-encoded.
ARRIVING = st.tuples(
    st.lists(st.none() | st.sampled_from(["", "a", "ä", "long" * 9]), max_size=6),
    st.booleans(),
    st.booleans(),
)


def arriving(texts: Texts, are_encoded: list[bool]) -> pa.Table:
    chunks = [pa.array(part, pa.string()) for part in (texts[1:], texts[:1])]
    column = pa.chunked_array(chunks)
    encoded = [column.dictionary_encode() if is_encoded else column for is_encoded in are_encoded]
    return pa.table({"a": encoded[0], "number": np.arange(len(texts)), "b": encoded[1]})


@settings(deadline=None, max_examples=examples(100))
@given(
    tables=st.lists(ARRIVING, min_size=1, max_size=6), max_bytes=st.sampled_from([0, 20, 60, 999])
)
def test_texts_are_the_same_after_dictionaries_have_grown(
    tables: list[tuple[Texts, bool, bool]], max_bytes: int
) -> None:
    given_tables = [arriving(texts, are_encoded) for texts, *are_encoded in tables]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_dictionaries, "_MAX_BYTES", max_bytes)
        shared = SharedDictionaries()
        stored = [shared.encode(rows) for rows in given_tables]
    found = [shared.decode(shared.update(rows)) for rows in stored]
    assert len({rows.schema for rows in found}) == 1, "they can be merged"
    for rows, expected in zip(found, given_tables, strict=True):
        assert decode(rows).to_pydict() == decode(expected).to_pydict()


def test_a_dictionary_is_given_up_when_it_becomes_large() -> None:
    shared = SharedDictionaries(plain=["b"])
    few: Texts = ["y", "x", None] * 9
    first = shared.encode(arriving(few, [True, True]))
    second = shared.encode(arriving(["z", "x"], [True, True]))
    assert first.schema.field("a").type == pa.int32()
    assert second.column("a").to_pylist() == [0, 2], "texts keep their numbers"
    assert first.schema.field("b").type == pa.string()
    assert shared.decode(shared.update(first)).schema.field("a").type == ENCODED_TEXTS
    third = shared.encode(arriving([str(n) for n in range(100_000)], [False, False]))
    assert third.schema.field("a").type == pa.string()
    assert shared.decode(shared.update(first)).column("a").to_pylist() == [*few[1:], few[0]]


@pytest.mark.parametrize("is_first", [True, False])
def test_more_texts_than_fit_are_plain(is_first: bool) -> None:
    shared = SharedDictionaries()
    few, many = (
        arriving(["x", "y"], [True, True]),
        arriving([str(n) for n in range(40_000)], [True, True]),
    )
    tables = [many, few] if is_first else [few, many]
    stored = [shared.encode(rows) for rows in tables]
    for rows, expected in zip(stored, tables, strict=True):
        found = shared.decode(shared.update(rows))
        assert found.schema.field("a").type == found.schema.field("b").type == pa.string()
        assert found.to_pydict() == decode(expected).to_pydict()


def test_a_dictionary_with_a_long_text_is_given_up() -> None:
    shared = SharedDictionaries()
    first = shared.encode(arriving(["y", "x"], [True, True]))
    second = shared.encode(arriving(["y", "x" * 2_000], [True, True]))
    assert first.schema.field("a").type == pa.int32()
    assert second.schema.field("a").type == pa.string()
    assert shared.update(first).column("a").to_pylist() == ["x", "y"]


def test_texts_that_exceed_an_arrow_array_are_decoded_in_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Arrow fails with "Take operation overflowed binary array capacity" from 2 GiB on."""
    monkeypatch.setattr(dictionaries, "_MAX_ARRAY_BYTES", 50)
    texts: Texts = ["long" * 5, "", None, "ä" * 30] * 3
    plain = decode(arriving(texts, [True, False])).column("a")
    assert plain.to_pylist() == [*texts[1:], texts[0]]
    assert [len(chunk) for chunk in plain.chunks] == [1] * len(texts)
