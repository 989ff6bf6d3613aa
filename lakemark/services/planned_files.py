"""Reads the file slices that the plan of a table service names, with the sizes of their files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from lakemark.errors import CorruptData
from lakemark.model.action import Action
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile, join
from lakemark.read.base_file import read_base_file
from lakemark.read.projection import project_schema
from lakemark.storage import Storage
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile, data_file
from lakemark.write.write_context import WriteContext


def recorded_log_sizes(
    paths: Collection[str], timeline: Timeline, store: TimelineStore
) -> dict[str, int]:
    """Return the sizes that commits recorded for the logs of a plan, in bytes by path.

    A reader treats a truncated log like a log whose writer died, and skips the last block. If a
    table service rewrote a truncated log, it would lose the rows of that block permanently, because
    nothing reads the log afterwards. Logs of archived commits are not included.

    Args:
        paths: the paths of the logs.
        timeline: the active timeline.
        store: reads the timeline's instants.
    """
    logs = (LogFileName.parse(path.rpartition("/")[2]) for path in paths)
    wrote = {log.instant for log in logs if log is not None}
    commits = (
        commit
        for commit in timeline.completed(Action.DELTA_COMMIT)
        if store.version.logs_name_their_slice or commit.requested_at in wrote
    )
    stats = (stat for commit in commits for stat in store.read_commit(commit).write_stats)
    sizes = ((stat.path, stat.file_size_in_bytes) for stat in stats)
    return {path: size for path, size in sizes if path is not None and path in paths}


def planned_slice(
    group: FileGroupId,
    base_instant: str,
    names: Iterable[str],
    storage: Storage,
    log_sizes: Mapping[str, int],
) -> FileSlice:
    """Return a slice as a plan names it, without files that were added to its file group since.

    The files get their real sizes, because a log of size 0 is read as empty.

    Args:
        group: the file group.
        base_instant: the instant of the slice.
        names: the names of the base file and of the logs; the logs in the order of reading.
        storage: the table's root.
        log_sizes: see ``recorded_log_sizes``.

    Raises:
        CorruptData: a file that the plan names is missing or is not a data file, or a log is
            smaller than its commit recorded.
    """
    files = [_file(group, name, storage) for name in names]
    for file in files:
        if file.size_bytes < log_sizes.get(file.path, 0):
            expected = f"{log_sizes[file.path]} bytes, which its commit wrote"
            raise CorruptData(file.path, None, expected, f"{file.size_bytes} bytes")
    bases = [file for file in files if isinstance(file, BaseFile)]
    logs = tuple(file for file in files if isinstance(file, LogFile))
    return FileSlice(group, base_instant, bases[0] if bases else None, logs)


def live_rows(
    context: WriteContext,
    slices: Iterable[FileSlice],
    columns: Sequence[str],
    log_sizes: Mapping[str, int],
    *,
    keeps_dictionaries: bool = False,
) -> Iterator[pa.Table]:
    """Yield the live rows of the slices of a plan, one slice after the other.

    Args:
        context: the write context of the table service.
        slices: the slices, with only the files that the plan names.
        columns: the columns of the rows; the rows may have more.
        log_sizes: see ``recorded_log_sizes``.
        keeps_dictionaries: whether columns of texts may be dictionary-encoded, which differs from
            slice to slice.

    Raises:
        CorruptData: a file is damaged, or missing.
    """
    for planned in slices:
        names = [str(planned.base.name)] if planned.base else []
        current = planned_slice(
            planned.group,
            planned.base_instant,
            [*names, *(str(log.name) for log in planned.logs)],
            context.storage,
            log_sizes,
        )
        if keeps_dictionaries and current.base and not current.logs and not context.virtual_keys:
            schema = project_schema(context.schema, columns)
            yield from read_base_file(
                context.storage, current.base, schema, keeps_dictionaries=True
            )
        else:
            yield from context.reader.merge(current, columns)


def _file(group: FileGroupId, name: str, storage: Storage) -> DataFile:
    info = storage.head(join(group.partition_path, name))
    file = data_file(group.partition_path, name, info.size_bytes) if info else None
    if file is None:
        place = f"plan to rewrite {group}"
        raise CorruptData(place, None, f"a data file {name!r}", "no such file")
    return file
