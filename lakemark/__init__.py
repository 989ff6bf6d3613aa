"""The Apache Hudi table format, on Arrow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakemark.merge.custom.api import CustomMerger
    from lakemark.table import Table

__all__ = ["open"]


def open(
    path: str | os.PathLike[str], *, mergers: Sequence[CustomMerger] = (), **storage_options: str
) -> Table:
    """The table at a place, ready for ``scan``.

    Args:
        path: a local path or a URL, as ``StorageLocation.url``.
        mergers: your own, for a table in merge mode ``CUSTOM``: it is read with the first that has
            its strategy id (``lakemark.merge.custom``).
        storage_options: what the store's client needs, as ``StorageLocation.options``.

    Raises:
        InvalidConfig: the place names no known kind of store, or an option is wrong.
        TableNotFound: no table lies there.
        CorruptData: its properties are damaged, and so is their backup.
    """
    # Not at the import of the package: workers and small tools need parts of it only.
    from lakemark.storage import StorageLocation
    from lakemark.table import open_table

    return open_table(StorageLocation(os.fspath(path), storage_options), mergers)
