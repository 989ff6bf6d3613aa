"""Loads code of users from a Python file, ``FILE.py:name``, in this process and in workers.

The module gets a unique name, so the file may have the name of another module, such as ``json.py``.
A pickled merger or step contains the text of the file, so only the driver needs the file.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from importlib.abc import ExecutionLoader
from importlib.util import decode_source, module_from_spec, spec_from_loader
from operator import attrgetter
from pathlib import Path
from threading import RLock
from types import ModuleType

from lakemark.errors import InvalidConfig

_PREFIX = "lakemark_source_file_"

#: The files that other processes have sent to this process, by path.
_received: dict[str, SourceFile] = {}

_loading = RLock()


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A Python file of a user, which defines a merger or the function of a step.

    Attributes:
        path: absolute path of the file in the process that read it.
        content: the bytes of the file.
    """

    path: str
    content: bytes

    @classmethod
    def read(cls, path: str, purpose: str = "merger") -> SourceFile:
        """Return the file at a path. If another process has sent this file, return the sent file.

        Args:
            path: the path of a local file.
            purpose: what the file defines, for errors.

        Raises:
            InvalidConfig: the path is a URL, or the file cannot be read.
        """
        if "://" in path:
            message = f"the {purpose}'s file {path} is a URL; pass the path of a local file"
            raise InvalidConfig(message)
        absolute = str(Path(path).expanduser().absolute())
        if absolute in _received:
            return _received[absolute]
        try:
            return cls(absolute, Path(absolute).read_bytes())
        except OSError as error:
            message = (
                f"the {purpose}'s file {absolute} cannot be read: {error.strerror}; pass the path "
                "of a local file"
            )
            raise InvalidConfig(message) from error

    def load(self) -> ModuleType:
        """Return the module of the file, which is executed once in each process.

        Raises:
            Exception: any error that the file raises when it is executed.
        """
        name = _PREFIX + hashlib.sha256(self.path.encode() + b"\0" + self.content).hexdigest()[:16]
        with _loading:  # another thread must not use a module before its execution has ended
            return sys.modules.get(name) or self._execute(name)

    def _execute(self, name: str) -> ModuleType:
        loader = _Loader(self)
        spec = spec_from_loader(name, loader, origin=self.path)
        assert spec is not None
        spec.has_location = True
        module = module_from_spec(spec)
        sys.modules[name] = module  # before execution, because dataclasses look up their module
        try:
            loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module

    def __reduce__(self) -> tuple[object, tuple[str, bytes]]:
        return _receive, (self.path, self.content)


def file_of(kind: type) -> SourceFile | None:
    """Return the file from which ``SourceFile`` loaded a class; None for any other class."""
    loader = getattr(sys.modules.get(kind.__module__), "__loader__", None)
    return loader.file if isinstance(loader, _Loader) else None


def class_in_file(file: SourceFile, qualified_name: str) -> type:
    """Return the class with this qualified name in a file; it may be nested in another class."""
    kind: type = attrgetter(qualified_name)(file.load())
    return kind


def _receive(path: str, content: bytes) -> SourceFile:
    _received[path] = SourceFile(path, content)
    return _received[path]


class _Loader(ExecutionLoader):
    def __init__(self, file: SourceFile) -> None:
        self.file = file

    def get_filename(self, _name: str) -> str:
        """See ``importlib.abc.ExecutionLoader``."""
        return self.file.path

    def get_source(self, _name: str) -> str:
        """See ``importlib.abc.InspectLoader``.

        With the source, tracebacks show the lines of the file, even in workers without the file.
        """
        return decode_source(self.file.content)
