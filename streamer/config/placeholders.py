"""Replaces a placeholder in the settings that differ between the tables of one pipeline file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lakemark.timeline.locks.options import given_name
from streamer.config.errors import Problem

#: The settings in which a placeholder is replaced, by section; "" for the file itself.
_SETTINGS: Final[Mapping[str, Sequence[str]]] = {
    "": ("name",),
    "source": ("checkpoint_id", "commit_group"),
    "decode": ("subject",),
    "table": ("path", "name"),
    "dead_letters": ("path",),
}

#: The section whose settings may all contain the placeholder.
_LOCK_OPTIONS: Final = ("concurrency", "lock", "options")

#: The sections and settings of a file.
Tree = dict[str, object]


def replace_placeholder(tree: Mapping[str, object], placeholder: str, text: str) -> Tree:
    """Return the settings with ``text`` instead of the placeholder.

    Args:
        tree: the sections and settings of a file.
        placeholder: what stands for the text, such as ``{topic}``.
        text: the text.
    """
    found: Tree = {**tree}
    for section, names in _SETTINGS.items():
        found = _replaced(found, (section,) if section else (), names, placeholder, text)
    return _replaced(found, _LOCK_OPTIONS, None, placeholder, text)


def lock_problems(tree: Mapping[str, object], placeholder: str) -> list[Problem]:
    """Return a problem if the tables would have the same lock."""
    lock = section_of(section_of(tree, "concurrency"), "lock")
    options = section_of(lock, "options").items()
    texts = {name: value for name, value in options if isinstance(value, str)}
    name = given_name(str(lock.get("provider")), texts)
    if name is None or any(placeholder in part for part in name):
        return []
    text = f"expected {placeholder} in the name of the lock, because each table needs its own lock"
    return [Problem(".".join(_LOCK_OPTIONS), text)]


def section_of(tree: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return a section; the file itself for "". It is empty if it is missing or no section."""
    section = tree.get(name) if name else tree
    return section if isinstance(section, Mapping) else {}


def _replaced(
    tree: Mapping[str, object],
    path: Sequence[str],
    names: Sequence[str] | None,
    placeholder: str,
    text: str,
) -> Tree:
    """Replace the placeholder in settings of a section.

    Args:
        tree: the section at the top.
        path: the names of the section inside it.
        names: the settings; None for all.
        placeholder: what is replaced.
        text: the text instead of it.
    """
    if path:
        inner = section_of(tree, path[0])
        changed = _replaced(inner, path[1:], names, placeholder, text)
        return {**tree, path[0]: changed} if changed != inner else {**tree}
    return {
        name: value.replace(placeholder, text)
        if isinstance(value, str) and (names is None or name in names)
        else value
        for name, value in tree.items()
    }
