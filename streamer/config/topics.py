"""Pipeline files that describe a pipeline for each of several topics.

``source.topics`` lists the topics, or ``source.topic_pattern`` matches them. In the settings that
differ between the pipelines, ``{topic}`` stands for the name of the topic.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from streamer.config.errors import ConfigError, Problem
from streamer.config.placeholders import Tree, lock_problems, replace_placeholder, section_of

#: What stands for the name of the topic.
PLACEHOLDER: Final = "{topic}"

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


def has_several_topics(tree: Mapping[str, object]) -> bool:
    """Return whether the file describes several pipelines, and no topic was chosen."""
    return _is_template(tree) and "topic" not in section_of(tree, "source")


def check_template(tree: Mapping[str, object]) -> list[Problem]:
    """Return the settings that would be the same for all topics, but must not be.

    Also return wrong lists and patterns, because no pipeline could be derived from them.
    """
    source = section_of(tree, "source")
    reason = f"expected a text with {PLACEHOLDER}, because each topic has its own pipeline"
    problems = [
        Problem(_path(section, name), f"{given}: {reason}")
        for section, name in _DIFFERENT
        if isinstance(given := section_of(tree, section).get(name), str)
        and PLACEHOLDER not in given
    ]
    problems += lock_problems(tree, PLACEHOLDER)
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
    found: Tree = {**tree, "source": {**section_of(tree, "source"), "topic": topic}}
    if _is_template(tree):
        found.setdefault("name", topic)
    found = replace_placeholder(found, PLACEHOLDER, topic)
    for section, longest in _LONGEST_FOLDERS.items():
        _check_path(f"{section}.path", section_of(tree, section).get("path"), topic, longest)
    return found


def matches(pattern: str, topic: str) -> bool:
    """Return whether a pattern matches the whole name of a topic that is not internal to Kafka."""
    return not topic.startswith("__") and re.fullmatch(pattern, topic) is not None


def _is_template(tree: Mapping[str, object]) -> bool:
    source = section_of(tree, "source")
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


def _path(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name
