"""Finds the steps of other packages, which declare an entry point in ``lakemark.transforms``.

A package declares a step in its ``pyproject.toml``::

    [project.entry-points."lakemark.transforms"]
    geocode = "shop.transforms:Geocode"

The object is called with the texts in ``settings`` of the step as keyword arguments, and returns a
``Transform``. Executors unpickle this object, so the package must be installed there, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakemark.extension_point import ExtensionPoint
from transforms.steps.transform import Transform

_INSTALLED: ExtensionPoint[Transform] = ExtensionPoint(
    group="lakemark.transforms",
    noun="step",
    verb="created",
    protocol="Transform",
    module="transforms.steps.transform",
    members=("output_schema", "apply", "key_sources", "apply_to_keys"),
)


def load_transform(name: str, settings: Mapping[str, str]) -> Transform:
    """Create the step that an installed package declares.

    Args:
        name: the name of the entry point.
        settings: the arguments.

    Raises:
        InvalidConfig: no package declares this name, the object cannot be imported or created, or
            it does not return a ``Transform``.
    """
    return _INSTALLED.load(name, (), settings, ())
