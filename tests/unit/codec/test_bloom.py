"""Bloom filters equal those of Apache Hudi, and a damaged one raises only a typed error."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.bloom import (
    BLOOM_FILTER,
    DYNAMIC_V0,
    MAX_RECORD_KEY,
    MIN_RECORD_KEY,
    SIMPLE,
    TYPE_CODE,
    BloomFilter,
    BloomFilterBuilder,
    FooterKeys,
)
from lakemark.errors import CorruptData, InvalidRecords, Unsupported
from tests.depth import examples

GOLDEN = json.loads((Path(__file__).parent / "golden/base_file_footer.json").read_text("utf-8"))

#: ``BloomFilterFactory.createBloomFilter(10, 1e-3, 25, "DYNAMIC_V0")`` with ``mixed_key`` of 0..36.
DYNAMIC_BY_APACHE = (
    "/////wAAAAoBAAAAkAAAAAoAAAARAAAAA/////8AAAAKAQAAAJBQ+u4w9ci7+7JfDxX6vjRvw0f/////AAAACgEAAACQerKC"
    "k+H+2LUdrZf+4m/wV/tU/////wAAAAoBAAAAkNMO5cktm/0gaOZdvttv9iORPw=="
)
#: ``createBloomFilter(100, 1e-3, 25, "SIMPLE")`` with ``mixed_key`` of 0..49.
SIMPLE_BY_APACHE = (
    "/////wAAAAoBAAAFngIgggoAALcdQYRQEhgcD0gIXJJoRIEWgHSYQTaLhaIITI8ZQa8QAEDKFwAwQAgKCQiQhkAACCIB0kAj"
    "uIEtRBhjKECiEJpJN6YcCYnChGoJoAiS8IAAeAYAEAiErRwAIEoyRgQdESCAAZoCoCiIEMFMAAXAAGVwKDKiAAjAAAJtWxgY"
    "3BmaAzWKtPuQYjKBDGIJAQCBQBAKBMULQGoopiIhmBQHDFCQBAAA7QqVA8CFQwaEOA=="
)


def mixed_key(number: int) -> str:
    """Return a key; keys have every length modulo four, and bytes that are negative in Java."""
    prefix = {0: "kéy-😀-", 1: "k", 2: "ключ"}.get(number % 7, "key-")
    return f"{prefix}{number}"


def mixed_keys(count: int) -> pa.Array:
    return pa.array([mixed_key(number) for number in range(count)], pa.string())


def test_the_footer_of_a_base_file_written_by_apache() -> None:
    builder = BloomFilterBuilder()
    builder.add(pa.array(GOLDEN["record_keys"]))
    footer = builder.footer()
    bits = base64.b64decode(footer[BLOOM_FILTER])
    assert bits == zlib.decompress(base64.b64decode(GOLDEN["footer"][BLOOM_FILTER]))
    rest = (TYPE_CODE, MIN_RECORD_KEY, MAX_RECORD_KEY)
    assert {key: footer[key] for key in rest} == {key: GOLDEN["footer"][key] for key in rest}


@pytest.mark.parametrize(
    ("key_count", "sha256"),
    [
        (0, "b3d5cc53dc8f85b4fe61f186deb2b03d94e5cc7f6bb65e98e4217b2d435ab1f7"),
        (130_001, "ed7d703262291b9d22d4f76fb7ca8baec0229af32a625ba886f0804e29303764"),
    ],
)
def test_a_filter_of_hudis_defaults_equals_apaches(key_count: int, sha256: str) -> None:
    """With 130,001 keys the filter has both of its rows, and reuses them from the first on."""
    builder = BloomFilterBuilder()
    builder.add(mixed_keys(key_count))
    assert hashlib.sha256(builder.footer()[BLOOM_FILTER].encode()).hexdigest() == sha256


@pytest.mark.parametrize(("key_count", "largest_bytes"), [(0, 100), (1, 100), (1_000, 8_000)])
def test_a_filter_of_few_keys_is_small_and_finds_only_them(
    key_count: int, largest_bytes: int
) -> None:
    entries = FooterKeys()
    for begin in range(0, key_count, 300):
        entries.add(mixed_keys(key_count)[begin : begin + 300])
    footer = entries.entries()
    assert len(footer[BLOOM_FILTER]) <= largest_bytes
    bloom = BloomFilter.parse(footer[BLOOM_FILTER], footer[TYPE_CODE])
    assert bloom.might_contain(mixed_keys(key_count)).all()
    others = pa.array([f"other {number}" for number in range(10_000)])
    assert not bloom.might_contain(others).any()


@pytest.mark.parametrize("part_keys", [7_000, 130_001])
def test_a_filter_of_many_keys_equals_apaches(part_keys: int) -> None:
    entries, builder, keys = FooterKeys(), BloomFilterBuilder(), mixed_keys(130_001)
    builder.add(keys)
    for begin in range(0, len(keys), part_keys):
        entries.add(keys[begin : begin + part_keys])
    assert entries.entries() == builder.footer()


@given(st.lists(st.integers(0, 37), max_size=4))
def test_keys_may_come_in_any_number_of_parts(cuts: list[int]) -> None:
    builder, keys = BloomFilterBuilder(10, 1e-3, 25), mixed_keys(37)
    bounds = [0, *sorted(cuts), 37]
    for start, end in pairwise(bounds):
        builder.add(keys[start:end])
    assert builder.footer()[BLOOM_FILTER] == DYNAMIC_BY_APACHE


@pytest.mark.parametrize(
    ("text", "type_code", "held"),
    [(DYNAMIC_BY_APACHE, DYNAMIC_V0, 37), (SIMPLE_BY_APACHE, SIMPLE, 50)],
)
def test_a_filter_written_by_apache_is_read(text: str, type_code: str, held: int) -> None:
    found = BloomFilter.parse(text, type_code).might_contain(mixed_keys(5_000))
    assert found[:held].all()
    assert found[held:].mean() < 0.02


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=40), st.integers(1, 20))
def test_a_key_that_was_added_is_found(texts: list[str], keys_per_row: int) -> None:
    builder = BloomFilterBuilder(keys_per_row, 1e-3, 30)
    keys = pa.array(texts)
    builder.add(keys)
    footer = builder.footer()
    read = BloomFilter.parse(footer[BLOOM_FILTER], footer[TYPE_CODE])
    assert read.might_contain(keys[len(texts) // 2 :]).all()


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.text(min_size=1, max_size=3), min_size=1), min_size=1))
def test_the_range_of_keys_is_in_javas_order(parts: list[list[str]]) -> None:
    builder = BloomFilterBuilder(10, 1e-1, 10)
    for part in parts:
        builder.add(pa.array(part))
    texts = sorted((text for part in parts for text in part), key=lambda t: t.encode("utf-16-be"))
    footer = builder.footer()
    assert (footer[MIN_RECORD_KEY], footer[MAX_RECORD_KEY]) == (texts[0], texts[-1])


def test_java_puts_the_last_characters_of_two_bytes_behind_those_of_four() -> None:
    builder = BloomFilterBuilder(10, 1e-1, 10)
    builder.add(pa.array(["\uff5e", "😀"]))
    assert builder.footer()[MIN_RECORD_KEY] == "😀"


@pytest.mark.parametrize("keys", [["a", None], ["a", ""]])
def test_a_key_that_may_not_be_is_refused(keys: list[str | None]) -> None:
    with pytest.raises(InvalidRecords):
        BloomFilterBuilder().add(pa.array(keys, pa.string()))


@pytest.mark.parametrize("type_code", [SIMPLE, DYNAMIC_V0])
@given(st.data())
def test_no_bytes_crash_the_reader(type_code: str, data: st.DataObject) -> None:
    whole = base64.b64decode(SIMPLE_BY_APACHE if type_code == SIMPLE else DYNAMIC_BY_APACHE)
    at = data.draw(st.integers(0, 40))
    damaged = whole[:at] + data.draw(st.binary(max_size=8)) + whole[at + data.draw(_CUT) :]
    try:
        read = BloomFilter.parse(base64.b64encode(damaged).decode(), type_code)
    except (CorruptData, Unsupported):
        return
    assert len(read.might_contain(pa.array(["a"]))) == 1


_CUT = st.integers(0, 12)


def test_a_row_of_another_shape_is_corrupt() -> None:
    whole = bytearray(base64.b64decode(DYNAMIC_BY_APACHE))
    struct.pack_into(">i", whole, 29, 9)  # hashes of the first row
    with pytest.raises(CorruptData):
        BloomFilter.parse(base64.b64encode(whole).decode(), DYNAMIC_V0)


def test_a_filter_of_an_unknown_type_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="RIBBON"):
        BloomFilter.parse(SIMPLE_BY_APACHE, "RIBBON")
    with pytest.raises(CorruptData):
        BloomFilter.parse("not base64!", SIMPLE)
