"""Keys of the metadata table contain the hashes of Apache Hudi."""

from __future__ import annotations

from lakemark.metadata.index_keys import hash_id


def test_column_has_the_hash_that_apache_hudi_gives_it() -> None:
    """The hash of ``qty`` is from the keys of a table of Apache Hudi.

    The seed of this hash is a negative number in Java, which must be converted for ``xxhash``.
    """
    assert hash_id("qty") == b"Ry+OM+iEz34="
