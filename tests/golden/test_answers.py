"""Every query of every table returns the same rows, columns and types as Apache Hudi."""

from __future__ import annotations

import pickle

import pytest

from lakemark.errors import Unsupported
from tests.golden.golden_table import ALL_TABLES, ask, plain_types, sorted_rows
from tests.golden.shared_tables import SharedTables

#: Tables that are refused, and a part of the message.
REFUSED = {
    "v9_cow_schema_on_read": "'price' was renamed to 'cost'",
    "v9_mor_schema_on_read": "'price' was renamed to 'cost'",
}

#: Partition columns that Apache Hudi on Spark derives from the path, in another spelling or type.
#: lakemark returns the value that was written.
FROM_PATH = {
    "v2_cow_default_partition": "region",
    "v3_cow_default_partition": "region",
    "v4_cow_default_partition": "region",
    "v6_mor_timestamp_keys_millis": "at_ms",
    "v9_cow_encoded_paths": "place",
    "v9_cow_slash_dates": "place",
    "v9_cow_timestamp_keys_days": "at_days",
    "v9_cow_timestamp_keys_zoned": "at_s",
    "v9_mor_timestamp_keys_millis": "at_ms",
}

#: Spans that include a compaction, and a late row after it. Spark skips the base file's row groups
#: by their commit times before it merges, so that it misses the newer row and returns the late one.
COMES_BACK = {
    ("v8_mor_non_blocking_writers", "incremental_1"),
    ("v8_mor_non_blocking_writers", "incremental_6"),
    ("v9_mor_non_blocking_writers", "incremental_1"),
    ("v9_mor_non_blocking_writers", "incremental_6"),
}


@pytest.mark.parametrize("name", [name for name in ALL_TABLES if name not in REFUSED])
def test_every_query_returns_the_rows_of_apache_hudi(
    name: str, shared_tables: SharedTables
) -> None:
    golden = shared_tables[name]
    assert {"snapshot", "read_optimized"} <= golden.queries.keys()
    for query, options in golden.queries.items():
        scan = pickle.loads(
            pickle.dumps(ask(golden.table, query, options))
        )  # as Spark sends it to workers
        found, expected = scan.to_table(), golden.expected(query)
        if name in FROM_PATH:
            column = FROM_PATH[name]
            assert query != "snapshot" or found[column] != expected[column]
            found, expected = found.drop_columns([column]), expected.drop_columns([column])
        is_same = sorted_rows(found) == sorted_rows(expected)
        assert is_same == ((name, query) not in COMES_BACK), query
        assert plain_types(found.schema) == plain_types(expected.schema), query


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_table_is_refused_with_a_reason(name: str, shared_tables: SharedTables) -> None:
    golden = shared_tables[name]
    for query, options in golden.queries.items():
        with pytest.raises(Unsupported, match=REFUSED[name]):
            ask(golden.table, query, options)
