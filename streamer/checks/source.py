"""The check of the source of a pipeline, for a start, and of sources other than Kafka."""

from __future__ import annotations

from lakemark.storage import open_storage
from streamer.checks.check import Check, Finding
from streamer.checks.topic import topic_check
from streamer.config.files_source import FilesSourceConfig
from streamer.config.pipeline import PipelineConfig
from streamer.config.table_source import TableSourceConfig
from streamer.sources.files.listing import list_files
from streamer.sources.tables.upstream import Upstream
from streamer.wording import counted, size_text


def source_check(config: PipelineConfig) -> Check:
    """Return the check that the source of a pipeline can be read, for a start."""
    if isinstance(config.source, FilesSourceConfig):
        return folder_check(config.source)
    if isinstance(config.source, TableSourceConfig):
        return upstream_check(config.source)
    return topic_check(config.kafka)


def folder_check(source: FilesSourceConfig) -> Check:
    """Return the check that the folder can be listed. A folder without files is a warning."""
    return Check(f"folder {source.path}", lambda: _check_folder(source))


def upstream_check(source: TableSourceConfig) -> Check:
    """Return the check that the table can be read. A table without commits is a warning."""
    return Check(f"source {source.path}", lambda: _check_upstream(source))


def _check_upstream(source: TableSourceConfig) -> Finding:
    upstream = Upstream(source)
    columns = upstream.columns
    facts = "no columns yet" if columns is None else counted(len(columns), "column")
    if upstream.has_commits:
        return Finding(f"query {source.query}, {facts}")
    return Finding(facts, ("the table has no commit yet, so there is nothing to read",))


def _check_folder(source: FilesSourceConfig) -> Finding:
    found = list_files(open_storage(source.location()), source.pattern)
    size_bytes = sum(one.size_bytes for one in found)
    facts = f"{counted(len(found), 'file')}, {size_text(size_bytes)}"
    if found:
        return Finding(facts)
    text = f"no file matches source.pattern {source.pattern}; check source.path, and the pattern"
    return Finding(facts, (text,))
