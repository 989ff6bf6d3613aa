"""Replaces functions of lakemark by others that measure them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

#: A module, and the name of a function in it, such as ``("sinks.hudi.collect", "collect")``.
FunctionName = tuple[str, str]


def replace_functions(
    functions: Mapping[str, FunctionName],
    measured: Callable[[str, Callable[..., Any]], Callable[..., Any]],
) -> None:
    """Replace each function, before other modules import it by its name.

    Args:
        functions: the function of each step.
        measured: returns the function that replaces the function of a step.
    """
    for step, (module, name) in functions.items():
        owner: Any = import_module(module)
        *classes, last = name.split(".")
        for each in classes:
            owner = getattr(owner, each)
        setattr(owner, last, measured(step, getattr(owner, last)))
