"""Imports the class or object at ``package.module:Class``."""

from __future__ import annotations

import importlib

from lakemark.config.merger_name import check_class_path
from lakemark.errors import InvalidConfig


def import_object(path: str) -> object:
    """Import the class or object of a path.

    Raises:
        InvalidConfig: the path is malformed, or this process cannot import the module, or the
            module lacks the name.
    """
    module_name, _, name = check_class_path(path).partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a custom module may raise any error
        message = (
            f"merger {path}: module {module_name} cannot be imported here "
            f"({type(error).__name__}: {error}); install it, or put its folder on PYTHONPATH, for "
            "the driver and for every worker (spark-submit --py-files does that)"
        )
        raise InvalidConfig(message) from error
    if not hasattr(module, name):
        file = getattr(module, "__file__", "built in")
        message = f"merger {path}: module {module_name} ({file}) has no {name}"
        raise InvalidConfig(message)
    found: object = getattr(module, name)
    return found
