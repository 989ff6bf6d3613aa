"""The step that calls a function of a Python file, which the driver sends to the executors."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from lakemark.errors import HudiError, InvalidConfig
from lakemark.execution.source_file import SourceFile
from transforms.steps.chain import TransformFault
from transforms.steps.single_rows import reject_failing_rows
from transforms.steps.transform import Transform, Transformed

_PATH = re.compile(r"(.+\.py):([^\W\d]\w*)", re.DOTALL)


class _FunctionFailed(Exception):
    """The function raised an error."""


@dataclass(frozen=True, slots=True)
class PythonFunction(Transform):
    """Calls a function with the rows as a ``pa.Table``; it returns a table of as many rows.

    The columns are those that the function returns for a table without rows. If the function raises
    an error, the rows for which it also fails alone are rejected.

    Attributes:
        file: the file that defines the function.
        name: the name of the function.
    """

    file: SourceFile
    name: str

    @classmethod
    def read(cls, path: str) -> PythonFunction:
        """Return the function ``FILE.py:name``.

        Raises:
            InvalidConfig: the path has another form, or the file cannot be read or imported, or has
                no such function.
        """
        match = _PATH.fullmatch(path)
        if match is None:
            message = f"function {path!r} is not of the form FILE.py:name"
            raise InvalidConfig(message)
        found = cls(SourceFile.read(match[1], "step"), match[2])
        try:
            function = getattr(found.file.load(), found.name, None)
        except Exception as error:  # a file of a user may raise any error
            message = f"{path} cannot be imported: {type(error).__name__}: {error}"
            raise InvalidConfig(message) from error
        if not callable(function):
            message = f"{path}: the file has no function {found.name!r}"
            raise InvalidConfig(message)
        return found

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See ``Transform``."""
        try:
            return self._call(schema.empty_table()).schema
        except _FunctionFailed as error:
            message = f"{self._label} must accept a table without rows, but raised {error}"
            raise InvalidConfig(message) from error
        except TransformFault as error:
            raise InvalidConfig(str(error)) from error

    def apply(self, rows: pa.Table) -> Transformed:
        """See ``Transform``."""
        return reject_failing_rows(self._call, rows, (_FunctionFailed,))

    @property
    def _label(self) -> str:
        return f"{self.file.path}:{self.name}"

    def _call(self, rows: pa.Table) -> pa.Table:
        function: Callable[[pa.Table], object] = getattr(self.file.load(), self.name)
        try:
            found = function(rows)
        except (HudiError, MemoryError):
            raise
        except Exception as error:  # code of a user may raise any error
            message = f"{self.name} raised {type(error).__name__}: {error}"
            raise _FunctionFailed(message) from error
        if not isinstance(found, pa.Table):
            fault = f"returned {type(found).__name__}, not a pyarrow.Table"
            raise TransformFault(self._label, fault)
        if found.num_rows != rows.num_rows:
            fault = (
                f"returned {found.num_rows} rows for {rows.num_rows}; a function returns one row "
                "for each row, use filter or explode for others"
            )
            raise TransformFault(self._label, fault)
        return found
