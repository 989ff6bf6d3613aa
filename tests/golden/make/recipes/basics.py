"""Tables that show one feature each, in every version that has it, with the five commits."""

from __future__ import annotations

from tests.golden.make.options import (
    BUCKETS,
    NO_METADATA,
    ORDERED_THE_OLD_WAY,
    copy_on_write,
    logs_of,
    merge_on_read,
    version,
)
from tests.golden.make.recipe import Recipe
from tests.golden.make.recipes.histories import five_commits, sixteen_commits

_ALL_VERSIONS = (6, 8, 9)

_RECORD_INDEX = {
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
}
_COMMIT_TIME = {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}
_COMPACTED = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}
_ARCHIVED = {
    "hoodie.compact.inline": "true",
    "hoodie.clean.automatic": "true",
    "hoodie.archive.automatic": "true",
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
    "hoodie.compact.inline.max.delta.commits": "3",
    "hoodie.commits.archival.batch": "2",
    "hoodie.timeline.compaction.batch.size": "2",
}
_PAYLOADS = {
    "default": "DefaultHoodieRecordPayload",
    "event_time": "EventTimeAvroPayload",
    "overwrite_latest": "OverwriteWithLatestAvroPayload",
    "overwrite_non_defaults": "OverwriteNonDefaultsWithLatestAvroPayload",
    "partial_update": "PartialUpdateAvroPayload",
}


def _simple(number: int) -> Recipe:
    return Recipe(
        f"v{number}_cow_simple",
        "Copy-on-write: each commit rewrites the base files that it changes.",
        copy_on_write(version(number)),
        five_commits,
    )


def _log_format(number: int, block_format: str) -> Recipe:
    return Recipe(
        f"v{number}_mor_{block_format}_bucket",
        f"Merge-on-read with a bucket index; data blocks contain {block_format.title()}.",
        merge_on_read(BUCKETS, version(number), logs_of(block_format)),
        five_commits,
    )


def _commit_time(number: int) -> Recipe:
    return Recipe(
        f"v{number}_mor_commit_time",
        "The later commit wins, whatever the ordering value is.",
        merge_on_read(BUCKETS, version(number), NO_METADATA, _COMMIT_TIME),
        five_commits,
    )


def _compacted(number: int) -> Recipe:
    return Recipe(
        f"v{number}_mor_compacted",
        "Inline compaction after every second delta commit.",
        merge_on_read(BUCKETS, version(number), _COMPACTED),
        five_commits,
    )


def _archived(number: int) -> Recipe:
    return Recipe(
        f"v{number}_mor_archived",
        "Cleaned and archived; most instants are only in the archived timeline.",
        merge_on_read(BUCKETS, version(number), NO_METADATA, _ARCHIVED),
        sixteen_commits,
    )


def _record_index(number: int) -> Recipe:
    return Recipe(
        f"v{number}_mor_recordindex",
        "Metadata table with record index, column statistics and Bloom filters.",
        merge_on_read(version(number), _RECORD_INDEX),
        five_commits,
    )


def _payload(number: int, name: str, payload: str) -> Recipe:
    chosen = {
        "hoodie.datasource.write.payload.class": f"org.apache.hudi.common.model.{payload}",
        **ORDERED_THE_OLD_WAY,
    }
    return Recipe(
        f"v{number}_mor_{name}_payload" if "overwrite" not in name else f"v{number}_mor_{name}",
        f"Records are merged by {payload}.",
        merge_on_read(BUCKETS, NO_METADATA, version(number), chosen),
        five_commits,
    )


RECIPES = (
    *(_simple(number) for number in _ALL_VERSIONS),
    *(_log_format(number, form) for number in _ALL_VERSIONS for form in ("avro", "parquet")),
    *(_commit_time(number) for number in _ALL_VERSIONS),
    *(_compacted(number) for number in _ALL_VERSIONS),
    *(_archived(number) for number in _ALL_VERSIONS),
    *(_record_index(number) for number in _ALL_VERSIONS),
    *(_payload(number, *payload) for number in (6, 9) for payload in _PAYLOADS.items()),
)
