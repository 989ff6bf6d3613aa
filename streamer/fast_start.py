"""Makes commands start faster: with fewer imports, and without garbage collection of imports."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def resume_garbage_collection() -> None:
    """Enable garbage collection again, if it was disabled for the start of the command.

    Imports create many objects, but no garbage. So the objects that exist now are excluded from
    later collections and from the collection at the end of the process.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def prevent_pandas_import() -> None:
    """Make pyarrow assume that pandas is not installed.

    pyarrow imports pandas when it first converts Python values, because it checks whether they are
    pandas types. This import takes longer than a query of a small table. Other code may still
    import pandas, but conversions between pyarrow and pandas then fail in this process.
    """
    import pyarrow as pa

    blocker = _PandasBlocker()
    sys.meta_path.insert(0, blocker)
    try:
        pa.array([0])  # pyarrow looks for pandas only once
    finally:
        sys.meta_path.remove(blocker)


class _PandasBlocker:
    """A finder that refuses to import pandas."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See ``importlib.abc.MetaPathFinder``."""
        if name == "pandas":
            raise ModuleNotFoundError(name=name)
        return None
