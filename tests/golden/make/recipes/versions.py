"""Tables that changed their version."""

from __future__ import annotations

from collections.abc import Callable

from tests.golden.make.options import BUCKETS, NO_METADATA, Options, merge_on_read, version
from tests.golden.make.recipe import Recipe
from tests.golden.make.recipes.histories import HARD_DELETED, LAST, LATE_AND_DELETED
from tests.golden.make.rows import rows
from tests.golden.make.table_in_making import TableInMaking

_NAMES = {6: "SIX", 8: "EIGHT", 9: "NINE"}
_ARCHIVED = {
    "hoodie.compact.inline": "true",
    "hoodie.clean.automatic": "true",
    "hoodie.archive.automatic": "true",
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
    "hoodie.compact.inline.max.delta.commits": "4",
    "hoodie.commits.archival.batch": "2",
}
_NO_SERVICES = {
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}
_PARTIAL_UPDATES = {
    "hoodie.datasource.write.payload.class": (
        "org.apache.hudi.common.model.PartialUpdateAvroPayload"
    ),
}


def _changed(number: int) -> Callable[[TableInMaking], None]:
    def write(table: TableInMaking) -> None:
        for commit in range(11):
            table.write("upsert", rows(range(commit % 5, 30, 2), version=commit, ts=100 + commit))
        direction = "downgrade" if number == 6 else "upgrade"
        table.sql(
            f"call {direction}_table(table => '{{table}}', to_version => '{_NAMES[number]}')",
            _NO_SERVICES,
        )
        then: Options = {**_NO_SERVICES, **version(number)}
        table.write("upsert", LATE_AND_DELETED, options=then)
        table.write("delete", HARD_DELETED, options=then)
        table.write("upsert", LAST, options=then)

    return write


RECIPES = (
    Recipe(
        "v8_mor_upgraded_from_6_archived",
        "Written and archived in version 6, then upgraded to 8; more commits follow.",
        merge_on_read(BUCKETS, NO_METADATA, version(6), _ARCHIVED),
        _changed(8),
    ),
    Recipe(
        "v9_mor_upgraded_from_6_archived",
        "Written and archived in version 6, then upgraded to 9; more commits follow.",
        merge_on_read(BUCKETS, NO_METADATA, version(6), _ARCHIVED),
        _changed(9),
    ),
    Recipe(
        "v9_mor_upgraded_from_8_archived",
        "Written in version 8 with a payload for partial updates, then upgraded to 9.",
        merge_on_read(BUCKETS, NO_METADATA, version(8), _ARCHIVED, _PARTIAL_UPDATES),
        _changed(9),
    ),
    Recipe(
        "v6_mor_downgraded_from_9",
        "Downgraded from version 9 by Apache Hudi; its hoodie.archivelog.folder does not exist.",
        merge_on_read(BUCKETS, NO_METADATA, version(9), _ARCHIVED),
        _changed(6),
    ),
)
