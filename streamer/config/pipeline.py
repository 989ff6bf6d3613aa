"""The whole pipeline file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import pyarrow as pa
from pydantic import Field, model_validator

from lakemark.errors import InvalidConfig
from streamer.config import cross_checks, settings
from streamer.config.archival import ArchivalConfig, archival_problems
from streamer.config.base_files import BaseFilesConfig, base_file_problems
from streamer.config.bucket_resizing import BucketResizingConfig, bucket_resizing_problems
from streamer.config.catalogs import Catalogs, catalog_problems, unresolved_catalogs
from streamer.config.cleaning import CleaningConfig
from streamer.config.clustering import ClusteringConfig, clustering_problems
from streamer.config.compaction import CompactionConfig, compaction_problems
from streamer.config.concurrency import ConcurrencyConfig, concurrency_problems
from streamer.config.decode import JsonDecodeConfig, RegistryDecodeConfig
from streamer.config.errors import Contradiction, Problem
from streamer.config.expect import Rules, build_checks, build_rules, expect_problems
from streamer.config.files_source import (
    DECODED_AS,
    FilesSourceConfig,
    files_problems,
    own_files_problems,
)
from streamer.config.formats import AnyDecodeConfig
from streamer.config.hooks import Hooks, hook_problems, unresolved_hooks
from streamer.config.kafka_source import KafkaSourceConfig, ending_problems
from streamer.config.metrics import MetricsConfig
from streamer.config.non_blocking import non_blocking_problems
from streamer.config.partition_lifetime import (
    PartitionLifetimeConfig,
    partition_lifetime_problems,
)
from streamer.config.presets import with_preset
from streamer.config.run import (
    DeadLettersConfig,
    RunConfig,
    SparkConfig,
    dead_letters_path,
    retry_problems,
)
from streamer.config.schema_registry import ACCESS_PATH
from streamer.config.section import Section, is_location
from streamer.config.snapshot import AnySnapshotConfig, in_snapshot, with_kind
from streamer.config.table import TableConfig
from streamer.config.table_source import TableSourceConfig, table_source_problems
from streamer.config.transform import Steps, build_chain, unresolved_secrets
from streamer.config.transform_checks import (
    decoded_columns,
    find_transform_problems,
    row_columns,
)
from transforms.batch_checks import BatchCheck
from transforms.expectations import Rule
from transforms.steps.chain import TransformChain

#: The ``source`` section of one of the kinds of sources.
AnySourceConfig: TypeAlias = Annotated[
    KafkaSourceConfig | FilesSourceConfig | TableSourceConfig, Field(discriminator="kind")
]


class PipelineConfig(Section):
    """A pipeline from one source to one table. ``model_dump`` masks secrets."""

    name: Annotated[str, Field(min_length=1)] = ""
    """The name of this pipeline in logs and metrics. Default: the name of the table."""

    source: AnySourceConfig
    snapshot: AnySnapshotConfig | None = None
    decode: AnyDecodeConfig = JsonDecodeConfig()

    transform: Steps = ()
    """The steps between decoding and record keys, in order. `decode.schema` declares the columns of
    the records before the steps, and must be given. The table has the columns after the last step,
    to which all settings of `table` refer. In messages, steps are counted from 0:
    `transform.1.cast`. See [Transform records](transforms.md)."""

    expect: Rules = ()
    table: TableConfig
    base_files: BaseFilesConfig = BaseFilesConfig()
    compaction: CompactionConfig = CompactionConfig()
    clustering: ClusteringConfig = ClusteringConfig()
    bucket_resizing: BucketResizingConfig = BucketResizingConfig()
    partition_lifetime: PartitionLifetimeConfig = PartitionLifetimeConfig()
    cleaning: CleaningConfig = CleaningConfig()
    archival: ArchivalConfig = ArchivalConfig()
    concurrency: ConcurrencyConfig = ConcurrencyConfig()
    catalogs: Catalogs = ()
    hooks: Hooks = ()
    dead_letters: DeadLettersConfig = DeadLettersConfig()
    run: RunConfig = RunConfig()
    metrics: MetricsConfig = MetricsConfig()
    spark: SparkConfig = Field(default_factory=lambda: SparkConfig(conf={}))

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: object) -> object:
        return _with_derived_defaults(given) if isinstance(given, Mapping) else given

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> PipelineConfig:
        problems = self._contradictions()
        if problems := [*problems, *self._contradictions_of_snapshot(problems)]:
            raise Contradiction(problems)
        return self

    def _contradictions(self) -> list[Problem]:
        return [
            *find_transform_problems(self.source, self.decode, self.table, self.transform),
            *cross_checks.find_contradictions(
                self.source,
                self.decode,
                self.table,
                self.dead_letters,
                self.transform,
            ),
            *expect_problems(
                self.source,
                self.decode,
                self.table,
                self.transform,
                self.dead_letters,
                self.expect,
            ),
            *files_problems(self.source, self.decode, self.decode.format),
            *own_files_problems(self.source, self.table, self.dead_letters),
            *table_source_problems(self.source, self.table, self.decode.format),
            *base_file_problems(self.base_files),
            *compaction_problems(self.compaction, self.table),
            *clustering_problems(self.clustering, self.table, self.archival),
            *bucket_resizing_problems(self.bucket_resizing, self.table),
            *partition_lifetime_problems(self.partition_lifetime, self.table),
            *ending_problems(self.source, self.run.mode),
            *retry_problems(self.run.retry),
            *archival_problems(self.cleaning, self.archival),
            *concurrency_problems(self.table.path, self.concurrency),
            *non_blocking_problems(self.concurrency, self.table, self.partition_lifetime),
            *catalog_problems(self.catalogs),
            *hook_problems(self.hooks),
        ]

    def _contradictions_of_snapshot(self, known: list[Problem]) -> list[Problem]:
        """Return the problems of the records of the snapshot that others do not have, too."""
        if self.snapshot is None:
            return []
        if not isinstance(self.source, KafkaSourceConfig):
            text = f"is only for pipelines that read Kafka, but source.kind is {self.source.kind}"
            return [Problem("snapshot", f"{text}; remove one of them")]
        has_own_steps = self.snapshot.transform is not None
        problems = [one for one in self.of_snapshot()._contradictions() if one not in known]
        return [in_snapshot(one, has_own_steps=has_own_steps) for one in problems]

    def unresolved(self) -> list[Problem]:
        """Return a problem for each secret that this machine cannot find."""
        return [
            *self.source.unresolved(),
            *(() if self.snapshot is None else self.snapshot.unresolved()),
            *settings.unresolved(self.table.storage, "table.storage"),
            *settings.unresolved(self.spark.conf, "spark.conf"),
            *self._unresolved_access(),
            *unresolved_secrets(self.transform),
            *self.metrics.unresolved(),
            *unresolved_catalogs(self.catalogs),
            *unresolved_hooks(self.hooks),
        ]

    @property
    def kafka(self) -> KafkaSourceConfig:
        """The section ``source`` of a pipeline that reads Kafka.

        Raises:
            InvalidConfig: the pipeline reads another source.
        """
        if isinstance(self.source, KafkaSourceConfig):
            return self.source
        message = (
            f"source.kind is {self.source.kind}, but this is only possible with a pipeline that "
            "reads Kafka"
        )
        raise InvalidConfig(message)

    def of_snapshot(self) -> PipelineConfig:
        """Return the pipeline that reads only the snapshot: the same with another source."""
        snapshot = self.snapshot
        assert snapshot is not None, "the pipeline has no snapshot"
        steps = self.transform if snapshot.transform is None else snapshot.transform
        sections = {
            "source": snapshot.source(self.source.checkpoint_id),
            "decode": snapshot.decode_with(self.decode),
            "transform": steps,
            "snapshot": None,
        }
        return self.model_copy(update=sections)

    def row_columns(self) -> pa.Schema | None:
        """Return the columns of the rows, without metadata of Kafka; None if they are inferred."""
        return row_columns(self.decode, self.transform)

    def transform_chain(self) -> TransformChain | None:
        """Return the steps of ``transform``, with their secrets; None if there are none.

        Raises:
            InvalidStep: a step cannot run on the columns before it.
            ConfigError: a secret cannot be found.
        """
        columns = decoded_columns(self.decode)
        return None if columns is None else build_chain(self.transform, columns)

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules of ``expect``."""
        return build_rules(self.expect)

    def checks(self) -> tuple[BatchCheck, ...]:
        """Return the checks of ``expect``."""
        return build_checks(self.expect)

    def _unresolved_access(self) -> list[Problem]:
        decode = self.decode
        registry = decode.schema_registry if isinstance(decode, RegistryDecodeConfig) else None
        return [] if registry is None else settings.unresolved(registry.access, ACCESS_PATH)


def _with_derived_defaults(given: Mapping[str, object]) -> dict[str, object]:
    """Return the tree with the defaults that depend on other settings."""
    source = _with_kind(given.get("source"))
    decode = _with_format(given.get("decode", {}), source, has_steps=bool(given.get("transform")))
    filled = with_preset({**given, "decode": decode})
    if "source" in given:
        filled["source"] = source
    if isinstance(snapshot := with_kind(given.get("snapshot")), Mapping):
        decode_of_snapshot = _with_format(snapshot.get("decode", {}), snapshot, has_steps=True)
        filled["snapshot"] = {**snapshot, "decode": decode_of_snapshot}
    table = filled.get("table")
    if not isinstance(table, Mapping) or not isinstance(table.get("path"), str):
        return filled
    path = table["path"].rstrip("/")
    filled.setdefault("name", table.get("name") or path.rpartition("/")[2])
    if is_location(table["path"]):  # a wrong path is reported once, for table.path
        _fill_section(filled, "dead_letters", "path", dead_letters_path(path))
    single_key = isinstance(table.get("record_key"), str) or (
        isinstance(table.get("record_key"), list | tuple) and len(table["record_key"]) == 1
    )
    by_text = single_key and not table.get("partition_by")
    decode = filled["decode"]
    if not isinstance(decode, Mapping) or decode.get("tombstones") != "ignore":
        _fill_section(filled, "decode", "tombstone_key", "raw" if by_text else "json")
    return filled


def _with_kind(source: object) -> object:
    """Return the section with the default kind, Kafka."""
    return {"kind": "kafka", **source} if isinstance(source, Mapping) else source


def _with_format(decode: object, source: object, *, has_steps: bool) -> object:
    """Return the section with the default format: that of the table or the files, or JSON.

    Columns that are added to a table are added to the table that is written, too, unless there are
    steps of ``transform``, which need declared columns.
    """
    if not isinstance(decode, Mapping):
        return decode
    kind = source.get("kind") if isinstance(source, Mapping) else None
    if kind == "table":
        evolves = {} if has_steps else {"unknown_fields": "evolve", "wider_values": "evolve"}
        return {"format": "columns", "tombstones": "ignore", **evolves, **decode}
    if kind != "files" or not isinstance(source, Mapping):
        return {"format": "json", **decode}
    decoded_as = DECODED_AS.get(str(source.get("format"))) or "json"
    return {"format": decoded_as, "tombstones": "ignore", **decode}


def _fill_section(filled: dict[str, object], section: str, name: str, value: str) -> None:
    present = filled.get(section, {})
    if isinstance(present, Mapping):
        filled[section] = {name: value, **present}
