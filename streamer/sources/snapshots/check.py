"""Checks a snapshot before anything is written, because no later run reads it again."""

from __future__ import annotations

from lakemark.config.table_properties import PROPERTIES_PATH
from lakemark.storage import Storage, open_storage
from lakemark.storage.parallel_requests import request_all
from lakemark.storage.storage import NotFound
from streamer.config.files_source import FilesSourceConfig
from streamer.config.pipeline import PipelineConfig
from streamer.config.table_source import TableSourceConfig
from streamer.sources.files.errors import UnreadableFile
from streamer.sources.files.file_format import FileFormat, check_file
from streamer.sources.files.formats import file_format
from streamer.sources.files.listing import list_files
from streamer.sources.snapshots.errors import BadSnapshot
from streamer.sources.tables.upstream import Upstream
from streamer.wording import counted, size_text

#: How many damaged files a message names.
_NAMED = 3


def check_snapshot(config: PipelineConfig) -> str:
    """Check that a snapshot has rows, and a small part of each of its files; return its size.

    Args:
        config: the pipeline that reads the snapshot (``PipelineConfig.of_snapshot``).

    Raises:
        BadSnapshot: there are no files, or no commits; or files are damaged; or the folder of the
            files is a table.
        HudiError: the store or the table cannot be read.
    """
    if isinstance(config.source, FilesSourceConfig):
        return _check_files(config.source, file_format(config.source, config.decode))
    assert isinstance(config.source, TableSourceConfig), config.source
    upstream = Upstream(config.source)
    if not upstream.has_commits:
        raise BadSnapshot(config.source.path, "the table has no commit yet")
    columns = upstream.columns
    return "no columns" if columns is None else counted(len(columns), "column")


def _check_files(source: FilesSourceConfig, form: FileFormat) -> str:
    storage = open_storage(source.location())
    if storage.head(PROPERTIES_PATH) is not None:
        reason = (
            "this is a Hudi table, whose files also contain deleted rows, and older versions of "
            "rows; set snapshot.kind: table, and remove the settings of files"
        )
        raise BadSnapshot(source.path, reason)
    files = list_files(storage, source.pattern)
    if not files:
        reason = f"no file matches snapshot.pattern {source.pattern}; export the table first"
        raise BadSnapshot(source.path, reason)
    if source.on_bad_file == "fail":
        faults = request_all(
            storage, lambda one: _find_fault(storage, form, one), [one.path for one in files]
        )
        _report(source.path, [one for one in faults if one])
    size_bytes = sum(one.size_bytes for one in files)
    return f"{counted(len(files), 'file')}, {size_text(size_bytes)}"


def _find_fault(storage: Storage, form: FileFormat, path: str) -> str:
    """Return the fault of a file; "" if none was found. Deleted files count as not listed."""
    try:
        check_file(storage, form, path)
    except NotFound:
        return ""
    except UnreadableFile as fault:
        return f"{path}: {fault}"
    return ""


def _report(folder: str, faults: list[str]) -> None:
    if not faults:
        return
    more = f"; and {len(faults) - _NAMED:,} more" if len(faults) > _NAMED else ""
    reason = (
        f"{counted(len(faults), 'file')} cannot be read: {'; '.join(faults[:_NAMED])}{more}. "
        "Correct the files, or set snapshot.on_bad_file: dead_letter"
    )
    raise BadSnapshot(folder, reason)
