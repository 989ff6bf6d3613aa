"""Checks that a writer would write the same keys, partition paths and buckets as the stored rows.

``lakemark.index.stored_rows`` makes the comparison. The check runs whenever a writer opens a table.
It runs even if lakemark wrote all active commits, because commits of other writers may have been
archived. The check reads a few rows of at most eight file groups, so its duration does not depend
on the size of the table.
"""

from __future__ import annotations

import json

from lakemark.config import keys
from lakemark.config.merge_settings import PartialUpdateMode, merge_settings
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.index.bucket import HASHING_FOLDER, BucketIndex
from lakemark.index.hash_ring import RINGS_FOLDER
from lakemark.index.partition_buckets import CONFIGS_FOLDER, is_known, load_partition_buckets
from lakemark.index.stored_rows import StoredRows, check_rows, detect_key_generator, fits_index
from lakemark.keygen.key_generator import KeyGenerator
from lakemark.metadata.expressions.indexed_expression import check_expressions
from lakemark.metadata.partition_kind import has_record_index
from lakemark.metadata.secondary_columns import check_types
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.operations.hash_ring_assigner import check_rings
from lakemark.operations.open_table import OpenTable
from lakemark.operations.stored_rows import stored_rows
from lakemark.read.renamed_columns import LATEST_SCHEMA


def check_stored_rows(table: OpenTable, index: BucketIndex | None) -> KeyGenerator:
    """Check that the stored rows have the keys, partition paths and buckets of this writer.

    Args:
        table: the open table.
        index: bucket index of the writer; None if keys are looked up in the table's files.

    Returns:
        The key generator for new rows.

    Raises:
        Unsupported: lakemark does not implement the table's key generator, or the rows do not
            contain the fields of their key; or the table has consistent hashing, and no meta
            columns.
        InvalidConfig: the rows have other keys, partition paths or buckets, or keys in two
            encodings; or another index created the file groups.
        HudiError: a file cannot be read.
    """
    _check_has_keys(table)
    sample, place = stored_rows(table), table.location.url
    generator = detect_key_generator(table.properties, sample, place)
    if index is not None:
        _check_count(table, sample, index)
    check_rows(sample, generator, index, place)
    if index is None:
        check_rings(table, sample)
    return generator


def check_record_index(table: OpenTable, *, looks_up_keys: bool) -> None:
    """Check that the keys of a writer can be in the record index, if the table has one.

    Args:
        table: the open table.
        looks_up_keys: whether the writer looks keys up, because there is no bucket index.

    Raises:
        Unsupported: the table has a bucket index. Its keys are unique only within a partition, and
            Apache Hudi does not add the keys of its own logs to the record index.
    """
    if has_record_index(table.properties) and not looks_up_keys:
        url = table.location.url
        message = (
            f"table {url} has a record index and a bucket index, so that Apache Hudi does not add "
            "all keys to the record index and misses rows in queries by key; drop the index "
            f"(lakemark table index drop {url} record_index --run)"
        )
        raise Unsupported(message)


def check_hashing(table: OpenTable) -> None:
    """Check that lakemark understands all files of the bucket index.

    These are hash rings, and bucket counts of partitions.

    Raises:
        Unsupported: there is another file, or lakemark does not understand the bucket counts.
            Source: ``HoodieTableMetaClient.getBucketIndexMetaPath``.
        Refused: see ``load_partition_buckets``.
    """
    found = [one.path for one in table.storage.list_tree(HASHING_FOLDER)]
    others = (path for path in found if not path.startswith(f"{RINGS_FOLDER}/"))
    stored = next((path for path in others if not is_known(path)), None)
    if stored is not None:
        message = (
            f"table {table.location.url} has a bucket index with the file {stored}, which lakemark "
            "does not understand; write to another path, or with Apache Hudi"
        )
        raise Unsupported(message)
    if any(path.startswith(f"{CONFIGS_FOLDER}/") for path in found):
        load_partition_buckets(table.storage, table.timeline)


def check_maintainable(table: OpenTable) -> None:
    """Check that lakemark's table services may rewrite the table's files.

    Raises:
        Unsupported: lakemark does not maintain such a table.
    """
    check_allows(table.properties, Purpose.MAINTAIN, table.location.url)
    check_value_indexes(table)
    if table.schema is not None:
        check_stored_schema(table)


def check_convertible(table: OpenTable) -> None:
    """Check that lakemark may change the version of the table.

    A table of a version before 6 is checked in full only when it has version 6, because its upgrade
    rewrites no data file.

    Raises:
        Unsupported: lakemark does not maintain such a table.
    """
    if not table.version.is_written:
        return
    check_maintainable(table)
    if not table.properties.populates_meta_columns:
        message = (
            f"table {table.location.url} has no meta columns ({keys.POPULATE_META_FIELDS}), and "
            "lakemark does not change the version of such a table; change it with Apache Hudi"
        )
        raise Unsupported(message)


def check_value_indexes(table: OpenTable) -> None:
    """Check that lakemark updates and builds the indexes of values of the table, if it has any.

    These are secondary indexes and expression indexes.

    Raises:
        Unsupported: lakemark does not update one of the indexes.
    """
    columns = table.metadata_writer.secondary_columns(table.properties)
    expressions = table.metadata_writer.expressions(table.properties)
    schema = table.known_schema if columns or expressions else None
    if schema is not None:
        check_types(columns, schema, table.location.url)
        check_expressions(expressions, schema, table.location.url)


def check_stored_schema(table: OpenTable) -> None:
    """Check that lakemark can continue the schema of the table, if there are commits.

    Raises:
        Unsupported: the table has an evolved schema of Apache Hudi, or its partial updates use
            column defaults, which lakemark cannot write.
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


def _check_has_keys(table: OpenTable) -> None:
    """Check that a table with consistent hashing has meta columns."""
    if table.first_ring_count is not None and not table.properties.populates_meta_columns:
        message = (
            f"table {table.location.url} has consistent hashing but no meta columns "
            f"({keys.POPULATE_META_FIELDS}), which lakemark does not write together; write with "
            "Apache Hudi, or write to another path"
        )
        raise Unsupported(message)


def _check_count(table: OpenTable, sample: list[StoredRows], index: BucketIndex) -> None:
    """Check the bucket count that a commit records, because a few rows may not show the count."""
    count = table.bucket_count
    if count is None or count == index.bucket_count or index.partitions is not None:
        return
    recorded = BucketIndex(count, index.key_fields, index.hash_fields)
    if fits_index(sample, recorded):
        message = (
            f"table {table.location.url} has {count} buckets in a partition, which does not fit "
            f"the {index.bucket_count} buckets of the pipeline; set table.buckets to {count}"
        )
        raise InvalidConfig(message)


def _check_defaults(table: OpenTable, newest: CommitMetadata) -> None:
    """Check that partial updates need no column default but null, as lakemark writes no other."""
    fills_defaults = PartialUpdateMode.IGNORE_DEFAULTS
    if merge_settings(table.properties).partial_update is not fills_defaults:
        return
    for field in json.loads(newest.extra_metadata[keys.SCHEMA])["fields"]:
        if field.get("default") is not None:
            message = (
                f"column {field['name']} of table {table.location.url} has the default "
                f"{field['default']!r}, which its partial updates ({fills_defaults}) use; lakemark "
                "writes no defaults except null; write to another path"
            )
            raise Unsupported(message)
