"""Checks whether pipelines can share a process, and gives all of them the settings of the process.

A process has one Spark session and one endpoint, so the sections ``spark`` and ``metrics`` must
agree. Files may omit them.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakemark.storage import canonical_url
from streamer.config.errors import Problem
from streamer.config.pipeline import PipelineConfig

#: The sections that belong to the process.
_OF_PROCESS = ("spark", "metrics")


class SharedSettings:
    """What the pipelines of a process have in common, and what only one of them may have."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._tables: dict[str, str] = {}
        self._locks: dict[tuple[str, ...], str] = {}
        self._given: dict[str, tuple[str, object]] = {}

    def add(self, file: str, config: PipelineConfig) -> list[Problem]:
        """Add a pipeline; return the reasons why it cannot share the process with the others.

        A pipeline with problems is not added.

        Args:
            file: the name of the file of the pipeline, for the problems.
            config: the pipeline.
        """
        problems = [
            *self._same_name(file, config),
            *self._overlapping_tables(file, config),
            *self._same_lock(file, config),
            *self._different_sections(file, config),
        ]
        if not problems:
            self._names[config.name] = file
            self.add_sections(file, config)
            urls = {canonical_url(path): setting for setting, path in _tables_of(config).items()}
            self._tables.update((url, f"{setting} of {file}") for url, setting in urls.items())
            if lock := config.concurrency.lock.given_name():
                self._locks[lock] = f"table.path {config.table.path} of {file}"
        return problems

    def add_sections(self, file: str, config: PipelineConfig) -> list[Problem]:
        """Add only the sections of the process; return those that differ from earlier ones."""
        problems = list(self._different_sections(file, config))
        for section in _OF_PROCESS:
            if section in config.model_fields_set:
                self._given.setdefault(section, (file, getattr(config, section)))
        return problems

    def share(self, config: PipelineConfig) -> PipelineConfig:
        """Return the pipeline with the sections of the process, which its file may omit."""
        return config.model_copy(
            update={section: value for section, (_, value) in self._given.items()}
        )

    def _same_name(self, file: str, config: PipelineConfig) -> Iterator[Problem]:
        other = self._names.get(config.name)
        if other is not None:
            text = f"{config.name} is also the name of {other}; logs and metrics need other names"
            yield Problem(file, f"name: {text}")

    def _overlapping_tables(self, file: str, config: PipelineConfig) -> Iterator[Problem]:
        """Yield a problem for each table at the path of, or inside, a table of another pipeline."""
        for setting, path in _tables_of(config).items():
            url = canonical_url(path)
            other = next((known for one, known in self._tables.items() if _overlap(url, one)), None)
            if other is not None:
                yield Problem(file, f"{setting}: {path} is in use by {other}")

    def _same_lock(self, file: str, config: PipelineConfig) -> Iterator[Problem]:
        """Yield a problem if the options of the lock name that of another pipeline's table."""
        lock = config.concurrency.lock.given_name()
        other = self._locks.get(lock) if lock else None
        if other is not None:
            text = f"they name the lock of {other}; each table needs its own lock"
            yield Problem(file, f"concurrency.lock.options: {text}")

    def _different_sections(self, file: str, config: PipelineConfig) -> Iterator[Problem]:
        for section in _OF_PROCESS:
            other, value = self._given.get(section, (file, getattr(config, section)))
            if section in config.model_fields_set and value != getattr(config, section):
                text = f"differs from {section} of {other}, but the pipelines share one process"
                yield Problem(file, f"{section}: {text}; name it in one of the files")


def _tables_of(config: PipelineConfig) -> dict[str, str]:
    """Return the paths of the tables that a pipeline writes, by setting."""
    tables = {"table.path": config.table.path}
    if config.dead_letters.enabled:
        tables["dead_letters.path"] = config.dead_letters.path
    return tables


def _overlap(url: str, other: str) -> bool:
    shorter, longer = sorted((url.rstrip("/"), other.rstrip("/")), key=len)
    return longer == shorter or longer.startswith(f"{shorter}/")
