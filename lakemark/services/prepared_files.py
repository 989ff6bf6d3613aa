"""What all files have in common that are encoded on local disk, and published later.

The table service that publishes them has no instant yet. So they are written for the instant
``NO_INSTANT``, with the columns and settings that the table has now. If these change before the
files are published, the files are useless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from lakemark.errors import Refused
from lakemark.execution.runner import Cancelled
from lakemark.model.file_slice import FileGroupId
from lakemark.model.meta_columns import COMMIT_TIME
from lakemark.read.file_group_reader import all_visible
from lakemark.services.clustering import PlanOutdated
from lakemark.storage import StorageLocation, open_storage
from lakemark.write.prepared_base_file import NO_INSTANT
from lakemark.write.prepared_file import PreparedFile
from lakemark.write.write_context import WriteContext


def local_context(context: WriteContext, folder: Path, instant: str = NO_INSTANT) -> WriteContext:
    """Return a context that writes files of an instant to a folder."""
    storage = open_storage(StorageLocation(str(folder)))
    return replace(context, instant=instant, attempt="").use_storage(storage)


def is_same_but_instant(context: WriteContext, other: WriteContext) -> bool:
    """Return whether two contexts give the same files but for the instant and the attempt."""
    return _without_instant(context) == _without_instant(other)


def until_cancelled(
    tables: Iterable[pa.Table], is_cancelled: Callable[[], bool]
) -> Iterator[pa.Table]:
    """Yield tables of rows.

    Raises:
        Cancelled: ``is_cancelled`` returned true before a table.
    """
    for rows in tables:
        if is_cancelled():
            raise Cancelled
        yield rows


def check_commit_times(rows: pa.Table, group: FileGroupId, remedy: str) -> None:
    """Check that no row would get the time of the table service, which is not known yet.

    Args:
        rows: rows with their commit times.
        group: the file group that contains them, for the message.
        remedy: what the user can do, for the message.

    Raises:
        Refused: a row has no commit time.
    """
    if rows.column(COMMIT_TIME).null_count:
        message = f"rows of {group} have no {COMMIT_TIME}, so they cannot be prepared; {remedy}"
        raise Refused(message)


def check_files(files: Iterable[PreparedFile]) -> None:
    """Check that prepared files still exist; programs may clean up temporary folders.

    Raises:
        PlanOutdated: a file is missing, or has another size.
    """
    for file in files:
        check_file(file.path, file.stat.file_size_in_bytes)


def check_file(path: Path, size_bytes: int) -> None:
    """Check that a prepared file still exists with its size.

    Raises:
        PlanOutdated: it does not.
    """
    with suppress(FileNotFoundError):
        if path.stat().st_size == size_bytes:
            return
    message = f"the prepared file {path} was removed or changed by another program"
    raise PlanOutdated(message)


@contextmanager
def copying(files: Sequence[PreparedFile]) -> Iterator[None]:
    """Run a block that copies prepared files to the table.

    Raises:
        PlanOutdated: another program has removed or changed one of the files meanwhile.
    """
    try:
        yield
    except FileNotFoundError:
        check_files(files)
        raise


def _without_instant(context: WriteContext) -> WriteContext:
    return replace(context, instant="", attempt="", is_visible=all_visible)
