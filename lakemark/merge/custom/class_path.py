"""Imports a merger's class or object from ``package.module:Class`` or ``FILE.py:Class``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from types import ModuleType

from lakemark.config.merger_name import check_class_path, is_file
from lakemark.errors import InvalidConfig
from lakemark.execution.source_file import SourceFile, file_of

_INSTALL = (
    "install it, or put its folder on PYTHONPATH, for the driver and for every worker "
    "(spark-submit --py-files does that)"
)
_ALONE = "a file may import installed modules only; put several files into a package and install it"


def import_object(path: str) -> object:
    """Import the class or object at a path and return it.

    Raises:
        InvalidConfig: the path is malformed, this process cannot import the module or file, or the
            module does not define the name.
    """
    source, _, name = check_class_path(path).rpartition(":")
    if is_file(path):
        module = _import(path, f"file {source}", SourceFile.read(source).load, _ALONE)
    else:
        load = partial(importlib.import_module, source)
        module = _import(path, f"module {source}", load, _INSTALL)
    if not hasattr(module, name):
        file = getattr(module, "__file__", "built in")
        message = f"merger {path}: module {source} ({file}) has no {name}"
        raise InvalidConfig(message)
    found: object = getattr(module, name)
    return found


def class_path_of(kind: type) -> str:
    """Return the path from which ``import_object`` can import a class."""
    file = file_of(kind)
    return f"{kind.__module__ if file is None else file.path}:{kind.__qualname__}"


def _import(path: str, described: str, load: Callable[[], ModuleType], remedy: str) -> ModuleType:
    try:
        return load()
    except Exception as error:  # a custom module may raise any error
        message = (
            f"merger {path}: {described} cannot be imported here "
            f"({type(error).__name__}: {error}); {remedy}"
        )
        raise InvalidConfig(message) from error
