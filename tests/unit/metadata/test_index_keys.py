"""Hashes in the keys of the metadata table."""

from __future__ import annotations

from lakemark.metadata.index_keys import hash_id


def test_column_has_the_hash_that_apache_hudi_gives_it() -> None:
    """The seed is negative as a Java long; ``qty`` is from the keys of a table of Apache Hudi."""
    assert hash_id("qty") == b"Ry+OM+iEz34="
