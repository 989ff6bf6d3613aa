"""Pipeline files that describe a pipeline for each of several topics.

``source.topics`` lists the topics, or ``source.topic_pattern`` matches them. In the settings that
differ between the pipelines, ``{topic}`` stands for the name of the topic.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from lakemark.timeline.locks.options import given_name
from streamer.config.errors import ConfigError, Problem

#: What stands for the name of the topic.
PLACEHOLDER: Final = "{topic}"

#: The settings in which the placeholder is replaced, by section; "" for the file itself.
_SETTINGS: Final[Mapping[str, Sequence[str]]] = {
    "": ("name",),
    "source": ("checkpoint_id", "commit_group"),
    "decode": ("subject",),
    "table": ("path", "name"),
    "dead_letters": ("path",),
}

#: The section whose settings may all contain the placeholder.
_LOCK_OPTIONS: Final = ("concurrency", "lock", "options")

#: The settings that must be different for each topic; the others may be.
_DIFFERENT = (("", "name"), ("table", "path"), ("table", "name"), ("dead_letters", "path"))

#: The longest name of a folder, in bytes, on the usual file systems.
_LONGEST_NAME: Final = 255

#: The default path of dead letters is that of the table with this suffix.
_SUFFIX: Final = "_dead_letters"

#: The longest folder in ``path`` of each section, in bytes.
_LONGEST_FOLDERS: Final[Mapping[str, int]] = {
    "table": _LONGEST_NAME - len(_SUFFIX),
    "dead_letters": _LONGEST_NAME,
}

Tree = dict[str, object]


def has_several_topics(tree: Mapping[str, object]) -> bool:
    """Return whether the file describes several pipelines, and no topic was chosen."""
    return _is_template(tree) and "topic" not in _section(tree, "source")


def check_template(tree: Mapping[str, object]) -> list[Problem]:
    """Return the settings that would be the same for all topics, but must not be.

    Also return wrong lists and patterns, because no pipeline could be derived from them.
    """
    source = _section(tree, "source")
    reason = f"expected a text with {PLACEHOLDER}, because each topic has its own pipeline"
    problems = [
        Problem(_path(section, name), f"{given}: {reason}")
        for section, name in _DIFFERENT
        if isinstance(given := _section(tree, section).get(name), str) and PLACEHOLDER not in given
    ]
    problems += _lock_problems(tree)
    topics, pattern = source.get("topics"), source.get("topic_pattern")
    if topics and pattern:
        problems.append(Problem("source.topic_pattern", "give either topics or topic_pattern"))
    elif topics:
        problems += _list_problems(topics)
    elif pattern and not _is_pattern(pattern):
        text = "expected a regular expression of Python, such as 'shop\\..*'"
        problems.append(Problem("source.topic_pattern", text))
    return problems


def for_topic(tree: Mapping[str, object], topic: str) -> Tree:
    """Return the sections and settings of the pipeline of one topic.

    Args:
        tree: the sections and settings of a file.
        topic: the name of the topic.

    Raises:
        ConfigError: the topic would give a table a path that no table may have.
    """
    found: Tree = {**tree, "source": {**_section(tree, "source"), "topic": topic}}
    if _is_template(tree):
        found.setdefault("name", topic)
    for section, names in _SETTINGS.items():
        found = _replaced(found, (section,) if section else (), names, topic)
    found = _replaced(found, _LOCK_OPTIONS, None, topic)
    for section, longest in _LONGEST_FOLDERS.items():
        _check_path(f"{section}.path", _section(tree, section).get("path"), topic, longest)
    return found


def matches(pattern: str, topic: str) -> bool:
    """Return whether a pattern matches the whole name of a topic that is not internal to Kafka."""
    return not topic.startswith("__") and re.fullmatch(pattern, topic) is not None


def _replaced(
    tree: Mapping[str, object], path: Sequence[str], names: Sequence[str] | None, topic: str
) -> Tree:
    """Replace the placeholder in settings of a section.

    Args:
        tree: the section at the top.
        path: the names of the section inside it.
        names: the settings; None for all.
        topic: the name of the topic.
    """
    if path:
        inner = _section(tree, path[0])
        changed = _replaced(inner, path[1:], names, topic)
        return {**tree, path[0]: changed} if changed != inner else {**tree}
    return {
        name: value.replace(PLACEHOLDER, topic)
        if isinstance(value, str) and (names is None or name in names)
        else value
        for name, value in tree.items()
    }


def _is_template(tree: Mapping[str, object]) -> bool:
    source = _section(tree, "source")
    return bool(source.get("topics") or source.get("topic_pattern"))


def _check_path(setting: str, path: object, topic: str, longest: int) -> None:
    if not isinstance(path, str):
        return
    for part in path.split("/"):
        name = part.replace(PLACEHOLDER, topic)
        if PLACEHOLDER in part and (name.startswith(".") or len(name.encode()) > longest):
            text = (
                f"topic {topic} would give the table a folder named {name}, but such a name must "
                f"not begin with a dot, and may have {longest} bytes; change the path, or exclude "
                "the topic"
            )
            raise ConfigError([Problem(setting, text)])


def _lock_problems(tree: Mapping[str, object]) -> list[Problem]:
    lock = _section(_section(tree, "concurrency"), "lock")
    options = _section(lock, "options").items()
    texts = {name: value for name, value in options if isinstance(value, str)}
    name = given_name(str(lock.get("provider")), texts)
    if name is None or any(PLACEHOLDER in part for part in name):
        return []
    text = f"expected {PLACEHOLDER} in the name of the lock, because each table needs its own lock"
    return [Problem(".".join(_LOCK_OPTIONS), text)]


def _list_problems(topics: object) -> list[Problem]:
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        return [Problem("source.topics", "expected a list of names, such as [a, b]")]
    if len(set(topics)) < len(topics):
        return [Problem("source.topics", "expected each name once")]
    return []


def _is_pattern(given: object) -> bool:
    if not isinstance(given, str):
        return False
    try:
        re.compile(given)
    except re.error:
        return False
    return True


def _section(tree: Mapping[str, object], name: str) -> Mapping[str, object]:
    section = tree.get(name) if name else tree
    return section if isinstance(section, Mapping) else {}


def _path(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name
