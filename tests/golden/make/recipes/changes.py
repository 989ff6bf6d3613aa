"""Change data capture, with images in the change log, and without."""

from __future__ import annotations

from tests.golden.make.options import (
    BUCKETS,
    NO_METADATA,
    Options,
    copy_on_write,
    merge_on_read,
    version,
)
from tests.golden.make.recipe import Recipe
from tests.golden.make.recipes.histories import (
    HARD_DELETED,
    INSERTED,
    UPDATED,
    five_commits,
)
from tests.golden.make.rows import rows
from tests.golden.make.table_in_making import TableInMaking

_MODE = "hoodie.table.cdc.supplemental.logging.mode"
_ENABLED = {"hoodie.table.cdc.enabled": "true"}
_COMPACTED = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}
_KEEPS = {
    "OP_KEY_ONLY": "only keys",
    "DATA_BEFORE": "the values before each change",
    "DATA_BEFORE_AFTER": "the values before and after each change",
}


def _replaced(table: TableInMaking) -> None:
    table.write("insert", INSERTED)
    table.write("upsert", UPDATED)
    table.write("insert_overwrite", rows(range(0, 30, 6), version=9, ts=500))
    table.write("delete", HARD_DELETED)
    table.write(
        "delete_partition",
        rows([0], version=0, ts=0),
        options={"hoodie.datasource.write.partitions.to.delete": "r2"},
    )


def _logging(number: int, table_type: str, mode: str, *more: Options) -> Recipe:
    table, index = (copy_on_write, {}) if table_type == "cow" else (merge_on_read, BUCKETS)
    suffix = f"cdc_{mode.lower()}" + ("_compacted" if more else "")
    return Recipe(
        f"v{number}_{table_type}_{suffix}",
        f"Change data capture that logs {_KEEPS[mode]}"
        + (", on a table that is compacted." if more else "."),
        table(index, NO_METADATA, version(number), _ENABLED, {_MODE: mode}, *more),
        five_commits,
        asks_cdc=True,
    )


RECIPES = (
    *(
        _logging(9, kind, mode)
        for kind in ("cow", "mor")
        for mode in ("OP_KEY_ONLY", "DATA_BEFORE")
    ),
    _logging(9, "mor", "OP_KEY_ONLY", _COMPACTED),
    _logging(9, "mor", "DATA_BEFORE_AFTER", _COMPACTED),
    _logging(6, "cow", "DATA_BEFORE"),
    Recipe(
        "v9_cow_cdc_replaced",
        "Change data capture of commits that replace whole file groups.",
        copy_on_write(NO_METADATA, version(9), _ENABLED),
        _replaced,
        asks_cdc=True,
    ),
)
