"""Tables of version 2, which Hudi 0.9 wrote. The current release can only query them."""

from __future__ import annotations

from tests.golden.make.options import (
    NO_METADATA,
    copy_on_write,
    merge_on_read,
    of_older_release,
)
from tests.golden.make.recipe import History, Recipe
from tests.golden.make.recipes.histories import (
    INSERTED,
    UPDATED,
    five_commits,
    in_default_partition,
    only_query,
)
from tests.golden.make.rows import rows
from tests.golden.make.table_in_making import TableInMaking

_GENERATOR = "hoodie.datasource.write.keygenerator.class"
_COMPACTED = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}
_HIVE_STYLE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
_ENCODED = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
_NO_PARTITIONS = {
    "hoodie.datasource.write.partitionpath.field": "",
    _GENERATOR: "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
}
_TWO_KEYS = {
    "hoodie.datasource.write.recordkey.field": "id,region",
    "hoodie.datasource.write.partitionpath.field": "region,day",
    _GENERATOR: "org.apache.hudi.keygen.ComplexKeyGenerator",
}


def _dead_writer(table: TableInMaking) -> None:
    table.write("insert", INSERTED)
    table.write("upsert", UPDATED)
    table.write("delete", rows([16, 17], version=7, ts=500))
    table.forget_completion()


def _of_0_9(name: str, shows: str, options: dict[str, str], history: History) -> Recipe:
    return Recipe(name, shows, options, only_query, earlier=(("0.9.0", history),))


RECIPES = (
    _of_0_9(
        "v2_cow_simple",
        "Written by Hudi 0.9, copy-on-write.",
        copy_on_write(of_older_release(NO_METADATA)),
        five_commits,
    ),
    _of_0_9(
        "v2_cow_default_partition",
        "Written by Hudi 0.9: rows without a partition value are in the folder `default`.",
        copy_on_write(of_older_release(NO_METADATA, _HIVE_STYLE)),
        in_default_partition,
    ),
    _of_0_9(
        "v2_mor_simple",
        "Written by Hudi 0.9, merge-on-read; delete blocks contain Java objects (Kryo).",
        merge_on_read(of_older_release(NO_METADATA)),
        five_commits,
    ),
    _of_0_9(
        "v2_mor_compacted",
        "Written by Hudi 0.9: inline compaction after every second delta commit.",
        merge_on_read(of_older_release(NO_METADATA, _COMPACTED)),
        five_commits,
    ),
    _of_0_9(
        "v2_mor_dead_writer",
        "Written by Hudi 0.9: the last writer died after it wrote its delete blocks.",
        merge_on_read(of_older_release(NO_METADATA)),
        _dead_writer,
    ),
    _of_0_9(
        "v2_mor_nonpartitioned",
        "Written by Hudi 0.9, without partitions.",
        merge_on_read(of_older_release(NO_METADATA, _NO_PARTITIONS)),
        five_commits,
    ),
    _of_0_9(
        "v2_mor_complex_encoded",
        "Written by Hudi 0.9: two key and two partition columns; URL-encoded, Hive-style paths.",
        merge_on_read(of_older_release(NO_METADATA, _TWO_KEYS, _HIVE_STYLE, _ENCODED)),
        five_commits,
    ),
)
