"""Finds the steps of other packages, which declare an entry point in ``lakemark.transforms``.

A package declares a step in its ``pyproject.toml``::

    [project.entry-points."lakemark.transforms"]
    geocode = "shop.transforms:Geocode"

The object is called with the texts in ``settings`` of the step as keyword arguments, and returns a
``Transform``. Executors unpickle this object, so the package must be installed there, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from lakemark.errors import InvalidConfig
from transforms.steps.transform import Transform

GROUP = "lakemark.transforms"


def load_transform(name: str, settings: Mapping[str, str]) -> Transform:
    """Create the step that an installed package declares.

    Args:
        name: the name of the entry point.
        settings: the arguments.

    Raises:
        InvalidConfig: no package declares this name, the object cannot be imported or created, or
            it does not return a ``Transform``.
    """
    found = entry_points(group=GROUP)
    if name not in found.names:
        installed = ", ".join(sorted(found.names)) or "none"
        message = (
            f"no installed package declares {name!r} in the entry points {GROUP} (installed: "
            f"{installed}); install it for the driver and for every executor"
        )
        raise InvalidConfig(message)
    try:
        created = found[name].load()(**settings)
    except Exception as error:  # code of another package may raise any error
        message = (
            f"{name} ({found[name].value}) cannot be created: {type(error).__name__}: {error}; "
            "correct its settings"
        )
        raise InvalidConfig(message) from error
    if not isinstance(created, Transform):
        message = (
            f"{name} ({found[name].value}) returned {type(created).__name__}; inherit from "
            "Transform of transforms.steps.transform"
        )
        raise InvalidConfig(message)
    return created
