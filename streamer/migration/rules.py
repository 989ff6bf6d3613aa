"""All rules, by subject, and the names of options and properties."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from streamer.migration.rule import PREFIX_MARK, Rule
from streamer.migration.rules_of_engine import (
    CATALOG_RULES,
    ENGINE_RULES,
    EVOLUTION_RULES,
    OBSERVATION_RULES,
)
from streamer.migration.rules_of_services import (
    BAD_RECORD_RULES,
    CONCURRENCY_RULES,
    METADATA_RULES,
    RUN_RULES,
    SERVICE_RULES,
)
from streamer.migration.rules_of_source import (
    SCHEMA_RULES,
    SOURCE_RULES,
    STREAMER,
    TRANSFORM_RULES,
)
from streamer.migration.rules_of_table import (
    FILE_RULES,
    INDEX_RULES,
    KEY_RULES,
    MERGE_RULES,
    TABLE_RULES,
)

#: The rules of each subject, in the order of the page.
SUBJECTS: Mapping[str, tuple[Rule, ...]] = MappingProxyType(
    {
        "Topic": SOURCE_RULES,
        "Schemas": SCHEMA_RULES,
        "Transformers": TRANSFORM_RULES,
        "Table": TABLE_RULES,
        "Keys and partitions": KEY_RULES,
        "Merging": MERGE_RULES,
        "Indexes": INDEX_RULES,
        "Base files and logs": FILE_RULES,
        "Table services": SERVICE_RULES,
        "Metadata table": METADATA_RULES,
        "Concurrency": CONCURRENCY_RULES,
        "Bad records": BAD_RECORD_RULES,
        "Run": RUN_RULES,
        "Schema evolution": EVOLUTION_RULES,
        "Catalogs": CATALOG_RULES,
        "Metrics and callbacks": OBSERVATION_RULES,
        "Execution": ENGINE_RULES,
    }
)

#: The options of HoodieStreamer.
OPTIONS = tuple(rule for rules in SUBJECTS.values() for rule in rules if rule.key.startswith("-"))

#: The former beginnings of names, and the current ones.
_OLD_PREFIXES: Mapping[str, str] = MappingProxyType(
    {"hoodie.deltastreamer.keygen.": "hoodie.keygen.", "hoodie.deltastreamer.": STREAMER}
)

#: Properties that did not exist when names began with ``hoodie.deltastreamer.``, so that
#: HoodieStreamer ignores these names.
_WITHOUT_OLD_NAME = (
    "hoodie.streamer.row.throw.explicit.exceptions",
    "hoodie.streamer.source.json.skip.invalid.records",
    "hoodie.streamer.source.kafka.ignore.prefix.config.list",
    "hoodie.streamer.source.kafka.offset.skip.buffer.minutes",
    "hoodie.streamer.source.kafka.proto.value.deserializer.class",
    "hoodie.streamer.source.kafka.retry.",
    "hoodie.streamer.source.kafka.spark.sql.consumer.enable",
)

#: Other former names. Source: ``withAlternatives`` of the configuration classes.
_OLD_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "hoodie.avro.schema.externalTransformation": "hoodie.avro.schema.external.transformation",
        "hoodie.clean.allow.multiple": "hoodie.clean.multiple.enabled",
        "hoodie.clean.async": "hoodie.clean.async.enabled",
        "hoodie.clean.max.commits": "hoodie.clean.trigger.max.commits",
        "hoodie.cleaner.commits.retained": "hoodie.clean.commits.retained",
        "hoodie.cleaner.delete.bootstrap.base.file": "hoodie.clean.delete.bootstrap.base.file",
        "hoodie.cleaner.fileversions.retained": "hoodie.clean.fileversions.retained",
        "hoodie.cleaner.hours.retained": "hoodie.clean.hours.retained",
        "hoodie.cleaner.incremental.mode": "hoodie.clean.incremental.enabled",
        "hoodie.cleaner.parallelism": "hoodie.clean.parallelism",
        "hoodie.cleaner.partition.filter.regex": "hoodie.clean.partition.filter.regex",
        "hoodie.cleaner.partition.filter.selected": "hoodie.clean.partition.filter.selected",
        "hoodie.cleaner.policy": "hoodie.clean.policy",
        "hoodie.cleaner.policy.failed.writes": "hoodie.clean.failed.writes.policy",
        "hoodie.compaction.record.merger.strategy": "hoodie.record.merge.strategy.id",
        "hoodie.datasource.clustering.async.enable": "hoodie.clustering.async.enabled",
        "hoodie.datasource.clustering.inline.enable": "hoodie.clustering.inline",
        "hoodie.datasource.view.type": "hoodie.datasource.query.type",
        "hoodie.datasource.write.record.merger.impls": (
            "hoodie.write.record.merge.custom.implementation.classes"
        ),
        "hoodie.datasource.write.record.merger.strategy": "hoodie.write.record.merge.strategy.id",
        "hoodie.datasource.write.storage.type": "hoodie.datasource.write.table.type",
        "hoodie.metadata.partitioned.record.index.max.filegroup.count": (
            "hoodie.metadata.record.level.index.max.filegroup.count"
        ),
        "hoodie.metadata.partitioned.record.index.min.filegroup.count": (
            "hoodie.metadata.record.level.index.min.filegroup.count"
        ),
        "hoodie.metadata.record.index.enable": "hoodie.metadata.global.record.level.index.enable",
        "hoodie.metadata.record.index.max.filegroup.count": (
            "hoodie.metadata.global.record.level.index.max.filegroup.count"
        ),
        "hoodie.metadata.record.index.min.filegroup.count": (
            "hoodie.metadata.global.record.level.index.min.filegroup.count"
        ),
        "hoodie.post.commit.failures.ignored": "hoodie.write.can.ignore.post.commit.failures",
        "hoodie.table.precombine.field": "hoodie.table.ordering.fields",
        "hoodie.table.ro.file.format": "hoodie.base.file.format",
        "hoodie.table.rt.file.format": "hoodie.table.log.file.format",
        "hoodie.write.lock.storage.heartbeat.poll.secs": (
            "hoodie.write.lock.storage.renew.interval.secs"
        ),
    }
)


def canonical_name(name: str) -> str:
    """Return the current name of a property."""
    if name in _OLD_NAMES:
        return _OLD_NAMES[name]
    for old, new in _OLD_PREFIXES.items():
        if name.startswith(old):
            found = new + name.removeprefix(old)
            return name if found.startswith(_WITHOUT_OLD_NAME) else found
    return name


def find_rule(name: str) -> Rule | None:
    """Return the rule of an option or property, by its current name; None if there is none.

    If several rules apply, the one with the longest key counts.
    """
    exact, prefixes = _by_key()
    if name in exact:
        return exact[name]
    found = [prefix for prefix in prefixes if name.startswith(prefix)]
    return prefixes[max(found, key=len)] if found else None


def nearest_name(name: str) -> str | None:
    """Return the known name that resembles an unknown one most; None if no name resembles it.

    The order of the words does not matter, because it is easily confused: ``source.kafka`` and
    ``kafka.source``.
    """
    known = {_sorted_words(one): one for one in _by_key()[0]}
    near = difflib.get_close_matches(_sorted_words(name), known, n=1, cutoff=0.85)
    return known[near[0]] if near else None


def _sorted_words(name: str) -> str:
    return ".".join(sorted(name.split(".")))


@cache
def _by_key() -> tuple[dict[str, Rule], dict[str, Rule]]:
    """Return the rules by their keys, and those of several names by the beginning of the names."""
    rules = [rule for rules in SUBJECTS.values() for rule in rules]
    exact = {rule.key: rule for rule in rules if not rule.key.endswith(PREFIX_MARK)}
    prefixes = {
        rule.key.removesuffix(PREFIX_MARK): rule for rule in rules if rule.key.endswith(PREFIX_MARK)
    }
    return exact, prefixes
