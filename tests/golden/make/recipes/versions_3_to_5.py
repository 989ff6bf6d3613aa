"""Tables of versions 3 to 5, written by the releases of Apache Hudi that had these versions.

The current release can only query them.
"""

from __future__ import annotations

from tests.golden.make.options import (
    BUCKETS,
    NO_METADATA,
    Options,
    copy_on_write,
    keyed_by,
    logs_of,
    merge_on_read,
    of_older_release,
)
from tests.golden.make.recipe import History, Recipe
from tests.golden.make.recipes.histories import (
    AFTERWARDS,
    HARD_DELETED,
    INSERTED,
    LATE_AND_DELETED,
    UPDATED,
    five_commits,
    in_default_partition,
    only_query,
)
from tests.golden.make.rows import rows
from tests.golden.make.table_in_making import TableInMaking

#: The release that writes each version.
_RELEASES = {3: "0.10.0", 4: "0.11.1", 5: "0.13.1"}

_METADATA = {"hoodie.metadata.enable": "true", "hoodie.metadata.compact.max.delta.commits": "2"}
_HIVE_STYLE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
_ENCODED = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
_TWO_KEYS = keyed_by("ComplexKeyGenerator", record="id,region", partition="region,day")


def _options(*groups: Options) -> dict[str, str]:
    return of_older_release({"hoodie.embed.timeline.server": "false"}, *groups)


def _first_three(table: TableInMaking) -> None:
    table.write("insert", INSERTED)
    table.write("upsert", UPDATED)
    table.write("delete", HARD_DELETED)


def _further_three(table: TableInMaking) -> None:
    table.write("upsert", LATE_AND_DELETED)
    table.write("delete", rows([9], version=5, ts=500))
    table.write("upsert", AFTERWARDS)


def _of(number: int, name: str, shows: str, options: Options, history: History) -> Recipe:
    release = _RELEASES[number]
    text = f"Written by Hudi {release.rpartition('.')[0]}: {shows}"
    return Recipe(
        f"v{number}_{name}",
        text,
        options,
        only_query,
        earlier=((release, history),),
    )


def _simple(number: int) -> Recipe:
    return _of(
        number,
        "mor_simple",
        "merge-on-read; Avro data blocks, delete blocks with Java objects (Kryo).",
        merge_on_read(_options(NO_METADATA)),
        five_commits,
    )


def _in_default_partition(number: int, folder: str) -> Recipe:
    return _of(
        number,
        "cow_default_partition",
        f"rows without a partition value are in the folder `{folder}`.",
        copy_on_write(_options(NO_METADATA, _HIVE_STYLE)),
        in_default_partition,
    )


RECIPES = (
    _simple(3),
    _simple(4),
    _simple(5),
    _in_default_partition(3, "default"),
    _in_default_partition(4, "default"),
    _in_default_partition(5, "__HIVE_DEFAULT_PARTITION__"),
    _of(
        3,
        "mor_metadata",
        "a metadata table, which was compacted.",
        merge_on_read(_options(_METADATA)),
        _first_three,
    ),
    _of(
        4,
        "mor_metadata",
        "a metadata table, which was compacted.",
        merge_on_read(_options(_METADATA)),
        _first_three,
    ),
    _of(
        3,
        "mor_complex_encoded",
        "two key and two partition columns; URL-encoded, Hive-style paths.",
        merge_on_read(_options(NO_METADATA, _TWO_KEYS, _HIVE_STYLE, _ENCODED)),
        _first_three,
    ),
    _of(
        5,
        "mor_parquet_bucket",
        "a bucket index; data blocks contain Parquet.",
        merge_on_read(_options(NO_METADATA, BUCKETS, logs_of("parquet"))),
        five_commits,
    ),
    Recipe(
        "v5_mor_upgraded_from_3",
        "Written by Hudi 0.10, then upgraded to version 5 and continued by Hudi 0.13.",
        merge_on_read(_options(_METADATA)),
        only_query,
        earlier=(("0.10.0", _first_three), ("0.13.1", _further_three)),
    ),
)
