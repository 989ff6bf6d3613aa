"""lakemark computes the same buckets, hash rings, shards and index keys as Apache Hudi.

The keys are drawn from a seed, and contain what is special in keys, hashes and indexes.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from lakemark.index.bucket import BucketIndex
from lakemark.index.hash_ring import HashRing
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.metadata.secondary_index import encode_keys
from lakemark.metadata.shards import shards_of
from tests.depth import SEED, examples
from tests.interop.oracle import Oracle

pytestmark = pytest.mark.oracle

_LETTERS = ["a", "0", "é", "\uffee", "\U0001f600", "$", "\\", "\0", "\n", " ", "%", "/", "'", '"']
_WORDS = [None, "", "__null__", "__empty__", "__null", "null", "id", "n"]
_PATHS = [
    "",
    "north",
    "region=a%2Fb",
    "2026/01/02",
    "\uff21\U0001f600",
    "__HIVE_DEFAULT_PARTITION__",
]


def _record_keys(draw: random.Random, fields: tuple[str, ...], count: int) -> list[str]:
    """Return the record keys of rows with odd values."""
    columns = [pa.array([_value(draw) for _ in range(count)], pa.string()) for _ in fields]
    rows = pa.table(columns, names=list(fields))
    keys = KeyGenerator(KeyGeneratorConfig(fields)).record_keys(rows).drop_null()
    texts: list[str] = keys.to_pylist()
    return texts


def _value(draw: random.Random) -> str | None:
    """Return an odd value, which has no ``:`` if it has a ``,``.

    Apache Hudi never ends to parse some of the keys with both, such as ``id:1,n:2,x:3:4``.
    """
    if draw.random() < 0.2:
        return draw.choice(_WORDS)
    letters = [*_LETTERS, draw.choice(",:")]
    return "".join(draw.choices(letters, k=draw.choice((1, 2, 3, 8, 40, 300))))


@pytest.mark.parametrize("fields", [("id",), ("id", "n"), ("n", "id", "at")], ids=",".join)
def test_keys_are_where_apache_hudi_looks_for_them(oracle: Oracle, fields: tuple[str, ...]) -> None:
    draw = random.Random(f"{SEED} {fields}")
    keys = _record_keys(draw, fields, examples(300))
    path, count = draw.choice(_PATHS), draw.choice((1, 2, 7, 64, 256))
    places = oracle.place_keys(keys, fields, path, count)
    column = pa.array(keys, pa.string())
    assert BucketIndex(count, fields).bucket_ids(column).tolist() == places["buckets"]
    assert shards_of(column, count).tolist() == places["shards"]
    assert encode_keys(column, column).to_pylist() == places["index_keys"]
    ring = HashRing.first(path, count)
    assert ring.to_json().decode() == places["ring"]
    buckets = ring.buckets_of_keys(column, fields).tolist()
    assert [ring.file_id_prefixes[one] for one in buckets] == places["ring_buckets"]
