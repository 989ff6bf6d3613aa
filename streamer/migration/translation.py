"""Translates a job of HoodieStreamer to a pipeline file that ``lakemark validate`` accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakemark.errors import HudiError
from streamer.config.column_roles import ordering_type_problems
from streamer.config.errors import ConfigError, Problem
from streamer.config.load import load_text
from streamer.config.pipeline import PipelineConfig
from streamer.migration.catalogs import convert_catalogs
from streamer.migration.clustering import convert_clustering
from streamer.migration.compacting import convert_compaction
from streamer.migration.files import convert_files, file_format
from streamer.migration.indexing import convert_index
from streamer.migration.job import Job
from streamer.migration.kafka import convert_source
from streamer.migration.merging import convert_merging
from streamer.migration.outcome import Harmless, Missing, Outcome, Sets
from streamer.migration.pipeline_text import render_pipeline
from streamer.migration.rule import Combined, Direct
from streamer.migration.rules import find_rule, nearest_name
from streamer.migration.running import convert_run
from streamer.migration.schemas import (
    SourceSchema,
    convert_schemas,
    find_source_schema,
    read_schema,
)
from streamer.migration.table import convert_table
from streamer.migration.tables import convert_table_source, reads_table
from streamer.migration.transforming import convert_transformers
from transforms.schema_text import print_schema

_TARGET_SCHEMA = "hoodie.streamer.schemaprovider.target.schema.file"

#: Settings without which nothing can be printed, because they have no default.
_NEEDED = (
    "decode.format",
    "table.path",
    "table.type",
)

_OF_KAFKA = ("source.bootstrap_servers", "source.topic")
_OF_PATHS = ("source.path",)

_TRANSFORM, _TEXT_ORDERING = "transform", "table.allow_text_ordering"

#: The beginning of settings that a table stores; rows depend on them.
_OF_TABLE = "table."


@dataclass(frozen=True, slots=True)
class Translation:
    """What became of a job.

    Attributes:
        outcomes: what became of each option and property.
        text: the pipeline file; None if there is none, because needed settings are missing or the
            settings cannot be combined.
        config: the pipeline; None if ``text`` is None.
        problems: why there is no pipeline file.
    """

    outcomes: tuple[Outcome, ...]
    text: str | None = None
    config: PipelineConfig | None = None
    problems: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the pipeline writes the same rows as the job."""
        changed = any(isinstance(one, Missing) and one.changes_rows for one in self.outcomes)
        return self.text is not None and not changed


def translate(job: Job, head: str = "") -> Translation:
    """Translate a job.

    Args:
        job: the job.
        head: the comment at the beginning of the pipeline file.

    Raises:
        Retriable: a store does not answer.
    """
    schema = find_source_schema(job)
    outcomes = tuple(_outcomes(job, schema))
    paths = {one.path for one in _settings(outcomes)}
    reads_path = reads_table(job) or file_format(job) is not None
    of_source = _OF_PATHS if reads_path else _OF_KAFKA
    lacking = [path for path in (*of_source, *_NEEDED) if path not in paths]
    if lacking:
        problem = f"the job gives no value for {', '.join(lacking)}"
        return _unprinted(job, outcomes, (problem,))
    return _validated(job, outcomes, head)


def _unprinted(job: Job, outcomes: tuple[Outcome, ...], problems: Iterable[str]) -> Translation:
    """Return the translation of a job without a pipeline file."""
    return Translation((*outcomes, *_target_schema(job, None)), problems=tuple(problems))


def _outcomes(job: Job, schema: SourceSchema | Missing | None) -> Iterator[Outcome]:
    """Yield what becomes of each option and property: first those that code combines."""
    combined: list[Outcome] = [
        *_of_source(job),
        *convert_schemas(job, schema),
        *convert_transformers(job, schema),
        *convert_table(job),
        *convert_merging(job),
        *convert_index(job),
        *convert_compaction(job),
        *convert_clustering(job),
        *convert_run(job),
        *convert_catalogs(job),
    ]
    yield from combined
    yield from job.replaced
    explained = {name for one in combined for name in one.names} | {_TARGET_SCHEMA}
    for name, value in job.values.items():
        if name not in explained:
            yield _apply_rule(name, value)


def _of_source(job: Job) -> Iterator[Outcome]:
    if reads_table(job):
        return convert_table_source(job)
    of_files = file_format(job)
    return convert_source(job) if of_files is None else convert_files(job, of_files)


def _apply_rule(name: str, value: str) -> Outcome:
    rule = find_rule(name)
    if rule is None and name.startswith("hoodie."):
        near = nearest_name(name)
        correct = f"correct its name (did you mean {near}?)" if near else "correct its name"
        remedy = (
            f"Apache Hudi 1.2.0 has no such property; {correct}, or see which of your own classes "
            "reads it"
        )
        return Missing((name,), remedy, True)
    if rule is None:
        remedy = (
            "neither Apache Hudi nor Kafka's consumer has such a property; drop it, unless a class "
            "of your own reads it"
        )
        return Missing((name,), remedy)
    if isinstance(rule.effect, Combined):
        remedy = "it was not translated, because options on which it depends have no counterpart"
        return Missing((name,), remedy, True)
    return rule.apply(name, value)


def _validated(job: Job, outcomes: tuple[Outcome, ...], head: str) -> Translation:
    """Return the translation whose text the loader of pipeline files accepts."""
    try:
        text, config = _load(outcomes, head)
    except ConfigError as error:
        repaired = _without_refused(outcomes, error.problems)
        if repaired == outcomes:
            return _unprinted(job, outcomes, map(str, error.problems))
        return _validated(job, repaired, head)
    return Translation((*outcomes, *_target_schema(job, config)), text, config)


def _load(outcomes: Iterable[Outcome], head: str) -> tuple[str, PipelineConfig]:
    """Return the text of the pipeline file, and the pipeline.

    Text columns are allowed in ``table.ordering`` if the job orders by one.

    Raises:
        ConfigError: the settings cannot be combined.
    """
    comment = "Text is compared character by character, as the job did."
    allowed = Sets(_TEXT_ORDERING, True, (), comment)
    settings = _settings(outcomes)
    text = render_pipeline([*settings, allowed], head)
    config = load_text(text)
    columns = config.row_columns() or pa.schema([])
    strict = config.table.model_copy(update={"allow_text_ordering": False})
    if not [*ordering_type_problems(columns, strict)]:
        text = render_pipeline(settings, head)
        config = load_text(text)
    return text, config


def _settings(outcomes: Iterable[Outcome]) -> list[Sets]:
    return [one for one in outcomes if isinstance(one, Sets)]


def _without_refused(
    outcomes: tuple[Outcome, ...], problems: Sequence[Problem]
) -> tuple[Outcome, ...]:
    """Return the outcomes in which refused steps and refused plain values have no counterpart."""
    return tuple(
        _missing_instead(one, problems) if isinstance(one, Sets) else one for one in outcomes
    )


def _missing_instead(setting: Sets, problems: Sequence[Problem]) -> Outcome:
    """Return what becomes of the names of a setting, if the problems are those of its value."""
    if setting.path == _TRANSFORM:
        refused = [str(one) for one in problems if one.path.startswith(_TRANSFORM)]
        remedy = f"the steps are refused: {'; '.join(refused)}; write steps that do the same"
        return Missing(setting.names, remedy, True) if refused else setting
    rule = find_rule(setting.names[0]) if setting.names else None
    is_plain = rule is not None and isinstance(rule.effect, Direct)
    refused = [one.message for one in problems if is_plain and one.path == setting.path]
    if not refused:
        return setting
    return Missing(setting.names, "; ".join(refused), setting.path.startswith(_OF_TABLE))


def _target_schema(job: Job, config: PipelineConfig | None) -> Iterator[Outcome]:
    """Yield what becomes of a schema file for the rows of the table.

    Args:
        job: the job.
        config: the pipeline; None if there is no pipeline file.
    """
    names = job.named(_TARGET_SCHEMA)
    if not names:
        return
    columns = None if config is None else config.row_columns()
    try:
        target = read_schema(job.get(_TARGET_SCHEMA)).columns
    except HudiError as error:
        yield Missing(names, f"{error}; compare its columns with those of the table", True)
        return
    if columns is not None and print_schema(columns) == print_schema(target):
        yield Harmless(names, "the rows have its columns")
        return
    remedy = (
        "the table gets the columns of the records, after the steps of transform; add the steps "
        "select and cast, so that these are the columns of the file"
    )
    yield Missing(names, remedy, True)
