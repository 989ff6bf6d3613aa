"""Loads the pipeline of a job of HoodieStreamer, to run it without a pipeline file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakemark.errors import InvalidConfig
from streamer.config.load import load_text
from streamer.config.pipeline import PipelineConfig
from streamer.migration.job import Job
from streamer.migration.outcome import Missing, Sets
from streamer.migration.properties import read_properties
from streamer.migration.rule import shown
from streamer.migration.secrets import variables_in
from streamer.migration.translation import Translation, translate

_ACCESS = "decode.schema_registry.access"

#: How many characters of a value a message shows.
_SHOWN = 80


class IncompleteTranslation(InvalidConfig):
    """A pipeline would not write the same rows as the job."""

    def __init__(self, reasons: Sequence[str]) -> None:
        listed = "".join(f"\n  {one}" for one in reasons)
        super().__init__(
            "the job of HoodieStreamer is not run, because a pipeline would not write the same "
            f"rows:{listed}\nTranslate the job with lakemark migrate, complete the pipeline file, "
            "and run this file"
        )
        self.reasons = tuple(reasons)


def read_job(location: str, words: Sequence[str], source_schema: str | None) -> Job:
    """Read a job.

    Args:
        location: the property file: a path or a URL.
        words: the arguments of HoodieStreamer.
        source_schema: see ``Job``.

    Raises:
        ConfigError: the property file cannot be read.
        InvalidConfig: an argument is not one of HoodieStreamer.
    """
    return Job.parse(read_properties(location), words, source_schema)


@dataclass(frozen=True, slots=True)
class PipelineOfJob:
    """The pipeline of a job.

    Attributes:
        config: the pipeline.
        warnings: one text for each option or property without a counterpart, on which no rows
            depend.
    """

    config: PipelineConfig
    warnings: tuple[str, ...]


def load_pipeline_of_job(job: Job, overrides: Sequence[str] = ()) -> PipelineOfJob:
    """Translate a job, and load its pipeline.

    The pipeline refers to environment variables for the secrets of the job. Those that are not set
    are set in this process, if the job contains their values.

    Args:
        job: the job.
        overrides: as for ``load``.

    Raises:
        IncompleteTranslation: a pipeline would not write the same rows as the job.
        ConfigError: the overrides are not valid.
        Retriable: a store does not answer.
    """
    found = translate(job)
    if not found.is_complete or found.text is None:
        raise IncompleteTranslation(_reasons(found, job))
    for variable, value in _secrets(found, job):
        os.environ.setdefault(variable, value)
    config = load_text(found.text, overrides=overrides)
    warnings = (f"without counterpart: {one}" for one in _texts(found, job, changes_rows=False))
    return PipelineOfJob(config, tuple(warnings))


def _reasons(found: Translation, job: Job) -> list[str]:
    return [*_texts(found, job, changes_rows=True), *found.problems]


def _texts(found: Translation, job: Job, *, changes_rows: bool) -> Iterator[str]:
    """Yield the options without a counterpart, with their values and the remedy."""
    for one in found.outcomes:
        if isinstance(one, Missing) and one.changes_rows == changes_rows:
            yield f"{', '.join(_with_value(name, job) for name in one.names)}: {one.remedy}"


def _with_value(name: str, job: Job) -> str:
    written, value = job.given.get(name, name), job.get(name)
    if name not in job.values:
        return f"{written} (not given)"
    text = shown(name, value)
    short = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return f"{written} {short}" if written.startswith("-") else f"{written}={short}"


def _secrets(found: Translation, job: Job) -> Iterator[tuple[str, str]]:
    """Yield the environment variables whose values the properties of the job contain."""
    for one in found.outcomes:
        if not isinstance(one, Sets) or len(one.names) != 1:
            continue
        value = _value_at(one.path, job.get(one.names[0]))
        for variable in variables_in(one.value):
            if value is not None:
                yield variable, value


def _value_at(path: str, given: str) -> str | None:
    """Return the value of a setting for which a property is given; None if it is only a part."""
    user, has_both, password = given.partition(":")
    if path.startswith("source.consumer.") or path == f"{_ACCESS}.token":
        return given
    if path in (f"{_ACCESS}.user", f"{_ACCESS}.password") and has_both and "://" not in given:
        return user if path.endswith(".user") else password
    return None
