"""Check that a writer would give the rows of a table the keys, paths and buckets that they have.

``lakemark.index.stored_rows`` compares them. A writer does this whenever it opens a table, even if
all commits of the timeline are ours: commits of other writers may have been archived since. It
reads a few rows of at most eight file groups, so it takes the same time for a table of any size.
"""

from __future__ import annotations

import json

from lakemark.config import keys
from lakemark.config.merge_settings import PartialUpdateMode, merge_settings
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.index.bucket import BucketIndex
from lakemark.index.stored_rows import StoredRows, check_rows, detect_key_generator, fits_index
from lakemark.keygen.key_generator import KeyGenerator
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.operations.open_table import OpenTable
from lakemark.operations.stored_rows import stored_rows
from lakemark.read.renamed_columns import LATEST_SCHEMA

#: Files of bucket indexes that have more than one bucket count.
_HASHING_FOLDER = ".hoodie/.bucket_index"


def check_stored_rows(table: OpenTable, index: BucketIndex) -> KeyGenerator:
    """Pass if the table was written with these keys, partition paths and buckets.

    Returns:
        The key generator that continues the table.

    Raises:
        Unsupported: the table has a key generator that is not implemented here, or its rows do not
            hold the fields of their key.
        InvalidConfig: the rows have other keys, partition paths or buckets, or keys of two
            encodings; or another index made their file groups.
        HudiError: a file cannot be read.
    """
    sample, place = stored_rows(table), table.location.url
    generator = detect_key_generator(table.properties, sample, place)
    _check_count(table, sample, index)
    check_rows(sample, generator, index, place)
    return generator


def check_hashing(table: OpenTable) -> None:
    """Pass if all partitions have one bucket count, which never changes.

    Raises:
        Unsupported: Apache Hudi stored other counts (partition-level buckets), or ranges of hashes
            (consistent hashing); source: ``HoodieTableMetaClient.getBucketIndexMetaPath``.
    """
    stored = next(iter(table.storage.list_tree(_HASHING_FOLDER)), None)
    if stored is not None:
        message = (
            f"table {table.location.url} has a bucket index whose buckets differ by partition or "
            f"change over time, as {stored.path} shows (hoodie.bucket.index.partition.expressions, "
            "or the engine CONSISTENT_HASHING); it is not written here; write to another path, or "
            "with Apache Hudi"
        )
        raise Unsupported(message)


def check_maintainable(table: OpenTable) -> None:
    """Pass if table services of this project may rewrite the table's files.

    Raises:
        Unsupported: a table that this project does not write.
    """
    check_allows(table.properties, Purpose.MAINTAIN, table.location.url)
    if table.schema is not None:
        check_stored_schema(table)


def check_stored_schema(table: OpenTable) -> None:
    """Pass if the columns of a table with commits can be continued.

    Raises:
        Unsupported: the table has an evolved schema of Apache Hudi, or its partial updates fill
            defaults that columns written here do not have.
    """
    newest = table.newest_metadata()
    if newest is None:
        return
    if newest.extra_metadata.get(LATEST_SCHEMA):
        message = (
            f"table {table.location.url} keeps an evolved schema next to its commits "
            "(hoodie.schema.on.read.enable), which lakemark does not continue; write to "
            "another path"
        )
        raise Unsupported(message)
    _check_defaults(table, newest)


def _check_count(table: OpenTable, sample: list[StoredRows], index: BucketIndex) -> None:
    """Commits of this project record the bucket count, which a few rows may not show."""
    count = table.bucket_count
    if count is None or count == index.bucket_count:
        return
    recorded = BucketIndex(count, index.key_fields, index.hash_fields)
    if fits_index(sample, recorded):
        message = (
            f"table {table.location.url} has {count} buckets in a partition, which does not fit "
            f"the {index.bucket_count} buckets of the pipeline; set table.buckets to {count}"
        )
        raise InvalidConfig(message)


def _check_defaults(table: OpenTable, newest: CommitMetadata) -> None:
    """Columns written here have no default but null, and partial updates may depend on it."""
    fills_defaults = PartialUpdateMode.IGNORE_DEFAULTS
    if merge_settings(table.properties).partial_update is not fills_defaults:
        return
    for field in json.loads(newest.extra_metadata[keys.SCHEMA])["fields"]:
        if field.get("default") is not None:
            message = (
                f"column {field['name']} of table {table.location.url} has the default "
                f"{field['default']!r}, which its partial updates ({fills_defaults}) fill; columns "
                "written here have no default but null; write to another path"
            )
            raise Unsupported(message)
