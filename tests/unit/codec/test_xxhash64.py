from __future__ import annotations

import base64

import pytest

from lakemark.codec.xxhash64 import xxhash64


@pytest.mark.parametrize(
    ("text", "seed", "expected"),
    [
        ("", 0, 0xEF46DB3751D8E999),
        ("a", 0, 0xD24EC4F1A98C6E5B),
        ("abc", 0, 0x44BC2CF5AD770999),
        ("xxhash", 20141025, 0xB559B98D844E0635),
        ("Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
    ],
)
def test_hashes_are_those_of_the_specification(text: str, seed: int, expected: int) -> None:
    assert xxhash64(text.encode(), seed) == expected


def test_a_negative_seed_is_a_java_long() -> None:
    """``qty`` as Apache Hudi names it in the keys of its statistics."""
    hashed = xxhash64(b"qty", -625288518)
    assert base64.b64encode(hashed.to_bytes(8)) == b"Ry+OM+iEz34="
