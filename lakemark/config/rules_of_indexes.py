"""The rules of the properties about the metadata table and its indexes."""

from __future__ import annotations

from lakemark.config import keys
from lakemark.config.property_predicates import MAINTAINED, is_none_of, is_set, names_unmaintained
from lakemark.config.property_rule import (
    ANOTHER_PATH,
    ANY_VALUE,
    DROP_METADATA_TABLE,
    Effect,
    PropertyRule,
    Purpose,
    Refusal,
    honoured,
    ignored,
)
from lakemark.config.table_properties import EXPRESSION_INDEX_PREFIX, SECONDARY_INDEX_PREFIX

_DROP_INDEX = "drop it (lakemark table index drop)"
_INDEX_DEFINITIONS = ".hoodie/.index_defs/index.json"

INDEX_RULES = (
    honoured(
        keys.METADATA_PARTITIONS,
        "an index that is not updated with each commit would hide rows. In versions before 6, the "
        "metadata table is not read",
        Refusal(
            Purpose.MAINTAIN,
            f"partitions other than {', '.join(f'`{name}`' for name in MAINTAINED)} and, from "
            f"table version 8 on, `{EXPRESSION_INDEX_PREFIX}…` and, with `record_index`, "
            f"`{SECONDARY_INDEX_PREFIX}…`",
            names_unmaintained,
            f"but lakemark updates only {', '.join(MAINTAINED)} and, from version 8 on, "
            f"{EXPRESSION_INDEX_PREFIX}… and, in tables with a record index, "
            f"{SECONDARY_INDEX_PREFIX}… with each commit",
            f"{_DROP_INDEX}, or {DROP_METADATA_TABLE}",
        ),
    ),
    honoured(
        keys.DROPPED_INDEXES,
        "a property of lakemark: indexes of a metadata table that was dropped, which the next "
        "metadata table has again",
    ),
    honoured(
        keys.STATISTICS_COLUMNS,
        "the columns with statistics, if a user has chosen them. Apache Hudi does not store it, "
        "but its Spark writers read it, and refuse options that differ from it",
    ),
    PropertyRule(
        keys.METADATA_PARTITIONS_INFLIGHT,
        Effect.HONOUR,
        Effect.HONOUR,
        "queries do not use an index that is being built, but writers have to update it",
        (
            Refusal(
                Purpose.MAINTAIN,
                ANY_VALUE,
                is_set,
                "so Apache Hudi is building this index; every writer must update it, but lakemark "
                "does not",
                f"wait until it is complete. If its process has died, {_DROP_INDEX}, or "
                f"{DROP_METADATA_TABLE}",
            ),
        ),
    ),
    honoured(
        keys.INDEX_DEFINITIONS_PATH,
        "lakemark uses the same path in every table",
        Refusal(
            Purpose.MAINTAIN,
            f"values other than `{_INDEX_DEFINITIONS}`",
            is_none_of(_INDEX_DEFINITIONS),
            f"but lakemark stores index definitions in {_INDEX_DEFINITIONS}",
            ANOTHER_PATH,
        ),
    ),
    ignored(
        keys.SECONDARY_INDEXES_METADATA,
        "indexes of Hudi 0.13, which queries of lakemark do not use",
        Refusal(
            Purpose.MAINTAIN,
            ANY_VALUE,
            is_set,
            "but lakemark does not update this index",
            ANOTHER_PATH,
        ),
    ),
)
