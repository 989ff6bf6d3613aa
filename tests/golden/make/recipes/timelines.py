"""Tables of several hundred commits, most of them archived."""

from __future__ import annotations

from tests.golden.make.options import NO_METADATA, keyed_by, merge_on_read, version
from tests.golden.make.recipe import Recipe
from tests.golden.make.rows import FEW_COLUMNS, few_columns
from tests.golden.make.table_in_making import TableInMaking

_COMMITS = 300
_FEW_FILES = {
    **keyed_by("NonpartitionedKeyGenerator", partition=""),
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "1",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.upsert.shuffle.parallelism": "1",
}
_SERVICES = {
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "10",
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "3",
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "12",
    "hoodie.keep.max.commits": "20",
}
_COMPACTED_HISTORY = {"hoodie.timeline.compaction.batch.size": "3"}


def _many_commits(table: TableInMaking) -> None:
    for number in range(_COMMITS):
        keys = [number % 40, 40 + number % 7]
        table.write("upsert", few_columns(keys, version=number, ts=number), FEW_COLUMNS)


RECIPES = (
    Recipe(
        "v6_mor_long_archived",
        "300 delta commits; the archived timeline consists of many log files.",
        merge_on_read(_FEW_FILES, NO_METADATA, version(6), _SERVICES),
        _many_commits,
    ),
    Recipe(
        "v9_mor_long_archived",
        "300 delta commits; the history's LSM tree has several levels.",
        merge_on_read(_FEW_FILES, NO_METADATA, version(9), _SERVICES, _COMPACTED_HISTORY),
        _many_commits,
    ),
)
