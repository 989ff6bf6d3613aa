"""The whole pipeline file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import pyarrow as pa
from pydantic import Field, model_validator

from streamer.config import cross_checks, settings
from streamer.config.archival import ArchivalConfig, archival_problems
from streamer.config.base_files import BaseFilesConfig, base_file_problems
from streamer.config.bucket_resizing import BucketResizingConfig, bucket_resizing_problems
from streamer.config.cleaning import CleaningConfig
from streamer.config.concurrency import ConcurrencyConfig, concurrency_problems
from streamer.config.decode import (
    ACCESS_PATH,
    AnyDecodeConfig,
    AvroDecodeConfig,
    JsonDecodeConfig,
)
from streamer.config.errors import Contradiction, Problem
from streamer.config.metrics import MetricsConfig
from streamer.config.partition_lifetime import (
    PartitionLifetimeConfig,
    partition_lifetime_problems,
)
from streamer.config.run import (
    CompactionConfig,
    DeadLettersConfig,
    RunConfig,
    SparkConfig,
    dead_letters_path,
    retry_problems,
)
from streamer.config.section import Section, is_location
from streamer.config.source import SourceConfig
from streamer.config.table import TableConfig
from streamer.config.transform import Steps, build_chain, unresolved_secrets
from streamer.config.transform_checks import (
    decoded_columns,
    find_transform_problems,
    row_columns,
)
from transforms.steps.chain import TransformChain


class PipelineConfig(Section):
    """A pipeline from one topic to one table. ``model_dump`` masks secrets."""

    name: Annotated[str, Field(min_length=1)] = ""
    """The name of this pipeline in logs and metrics. Default: the name of the table."""

    source: SourceConfig
    decode: AnyDecodeConfig = JsonDecodeConfig()

    transform: Steps = ()
    """The steps between decoding and record keys, in order. `decode.schema` declares the columns of
    the records before the steps, and must be given. The table has the columns after the last step,
    to which all settings of `table` refer. In messages, steps are counted from 0:
    `transform.1.cast`. See [Transform records](transforms.md)."""

    table: TableConfig
    base_files: BaseFilesConfig = BaseFilesConfig()
    compaction: CompactionConfig = CompactionConfig()
    bucket_resizing: BucketResizingConfig = BucketResizingConfig()
    partition_lifetime: PartitionLifetimeConfig = PartitionLifetimeConfig()
    cleaning: CleaningConfig = CleaningConfig()
    archival: ArchivalConfig = ArchivalConfig()
    concurrency: ConcurrencyConfig = ConcurrencyConfig()
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
        problems = [
            *find_transform_problems(self.source, self.decode, self.table, self.transform),
            *cross_checks.find_contradictions(
                self.source,
                self.decode,
                self.table,
                self.compaction,
                self.dead_letters,
                self.transform,
            ),
            *base_file_problems(self.base_files),
            *bucket_resizing_problems(self.bucket_resizing),
            *partition_lifetime_problems(self.partition_lifetime, self.table),
            *retry_problems(self.run.retry),
            *archival_problems(self.cleaning, self.archival),
            *concurrency_problems(self.table.path, self.concurrency),
        ]
        if problems:
            raise Contradiction(problems)
        return self

    def unresolved(self) -> list[Problem]:
        """Return a problem for each secret that this machine cannot find."""
        return [
            *settings.unresolved(self.source.consumer, "source.consumer"),
            *settings.unresolved(self.table.storage, "table.storage"),
            *settings.unresolved(self.spark.conf, "spark.conf"),
            *self._unresolved_access(),
            *unresolved_secrets(self.transform),
        ]

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

    def _unresolved_access(self) -> list[Problem]:
        decode = self.decode
        registry = decode.schema_registry if isinstance(decode, AvroDecodeConfig) else None
        return [] if registry is None else settings.unresolved(registry.access, ACCESS_PATH)


def _with_derived_defaults(given: Mapping[str, object]) -> dict[str, object]:
    """Return the tree with the defaults that depend on other settings."""
    filled = dict(given)
    filled["decode"] = _with_format(given.get("decode", {}))
    table = given.get("table")
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


def _with_format(decode: object) -> object:
    """Return the section with the default format, JSON."""
    return {"format": "json", **decode} if isinstance(decode, Mapping) else decode


def _fill_section(filled: dict[str, object], section: str, name: str, value: str) -> None:
    present = filled.get(section, {})
    if isinstance(present, Mapping):
        filled[section] = {name: value, **present}
