"""Finds what installed packages add to lakemark: objects that they declare as entry points.

A package declares an object in its ``pyproject.toml``::

    [project.entry-points."lakemark.locks"]
    consul = "shop.locks:ConsulLock"
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from lakemark.errors import InvalidConfig

T = TypeVar("T")


@dataclass(frozen=True)
class ExtensionPoint(Generic[T]):
    """A group of entry points whose objects create implementations of a protocol.

    Attributes:
        group: the name of the group.
        noun: what messages call an implementation.
        verb: what happens to it, in messages: ``opened`` or ``created``.
        protocol: the name of the protocol.
        module: the module of the protocol.
        members: the members of the protocol.
    """

    group: str
    noun: str
    verb: str
    protocol: str
    module: str
    members: tuple[str, ...]

    def installed_names(self) -> list[str]:
        """Return the names that installed packages declare."""
        return sorted(entry_points(group=self.group).names)

    def load(
        self,
        name: str,
        values: tuple[str, ...],
        options: Mapping[str, str],
        built_in: Collection[str],
    ) -> T:
        """Create the implementation that an installed package declares.

        Args:
            name: the name of the entry point.
            values: the positional arguments of its object.
            options: the keyword arguments.
            built_in: the names of lakemark's own implementations, for the error; maybe none.

        Raises:
            InvalidConfig: no package declares this name, the object cannot be imported or called,
                or what it returns lacks a member of the protocol.
        """
        declared = self._find(name, built_in)
        try:
            created: T = declared.load()(*values, **options)
        except Exception as error:  # code of another package may raise any error
            # Its text may contain the value of an option, such as a password.
            message = (
                f"{self.noun} {name} ({declared.value}) cannot be {self.verb} with the options "
                f"{', '.join(options) or 'none'}: {type(error).__name__}; correct them"
            )
            raise InvalidConfig(message) from error
        self._check_members(declared, created)
        return created

    def _find(self, name: str, built_in: Collection[str]) -> EntryPoint:
        found = entry_points(group=self.group)
        if name not in found.names:
            known = ", ".join([*built_in, *self.installed_names()])
            lacks = "neither one of lakemark's nor declared" if built_in else "not declared"
            remedy = f"use one of {known}" if known else "install the package that declares it"
            message = f"{self.noun} {name!r} is {lacks} in the entry points {self.group}; {remedy}"
            raise InvalidConfig(message)
        return found[name]

    def _check_members(self, declared: EntryPoint, created: T) -> None:
        missing = [member for member in self.members if not hasattr(created, member)]
        if missing:
            message = (
                f"{self.noun} {declared.name} ({declared.value}) has no {missing[0]}; implement "
                f"{self.protocol} of {self.module}"
            )
            raise InvalidConfig(message)
