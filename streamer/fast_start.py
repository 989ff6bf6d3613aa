"""What makes a command answer sooner: fewer imports, without garbage collection."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def resume_garbage_collection() -> None:
    """Collect garbage again, if the start of the command has switched it off.

    Imports create many objects and no garbage. Later collections, and that at the end of the
    process, ignore the objects that exist now.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def prevent_pandas_import() -> None:
    """Make pyarrow assume that pandas is not installed.

    pyarrow imports pandas when it first converts Python values, in order to recognise its types.
    The import takes longer than a query of a small table. Other code may still import pandas, but
    conversions between pyarrow and pandas then fail in this process.
    """
    import pyarrow as pa

    blocker = _PandasBlocker()
    sys.meta_path.insert(0, blocker)
    try:
        pa.array([0])  # pyarrow looks for pandas once
    finally:
        sys.meta_path.remove(blocker)


class _PandasBlocker:
    """A finder that fails for pandas."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See ``importlib.abc.MetaPathFinder``."""
        if name == "pandas":
            raise ModuleNotFoundError(name=name)
        return None
