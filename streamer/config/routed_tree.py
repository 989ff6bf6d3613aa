"""Pipeline files with a section ``route``: the settings of each of their tables.

``{value}`` stands for the value of the field or header that names the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from streamer.config.errors import Problem
from streamer.config.placeholders import Tree, lock_problems, replace_placeholder, section_of

#: What stands for the value that names a table.
VALUE: Final = "{value}"

#: The default of ``source.max_records_per_batch``. A batch makes a commit to each of its tables,
#: and fifty commits take the processor as long as 700,000 records.
_MAX_RECORDS_PER_BATCH: Final = 2_000_000

#: The settings that must be different for each table.
_DIFFERENT = (("table", "path"), ("table", "name"), ("dead_letters", "path"))

#: The scheme and the bucket of a URL.
_BUCKET = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")


def has_route(tree: Mapping[str, object]) -> bool:
    """Return whether the file divides its topic among many tables."""
    return tree.get("route") is not None


def chosen_value(tree: Mapping[str, object]) -> str | None:
    """Return the value that a command has chosen, to work on one table; None if it has not."""
    value = section_of(tree, "route").get("value")
    return None if value is None else str(value)


def stream_name(tree: Mapping[str, object]) -> str:
    """Return the name of the pipeline: by default, that of its topic."""
    return str(tree.get("name") or section_of(tree, "source").get("topic") or "stream")


def pipeline_name(tree: Mapping[str, object], value: str) -> str:
    """Return the name of the pipeline of one table."""
    return f"{stream_name(tree)}/{value}"


def for_value(tree: Mapping[str, object], value: str) -> Tree:
    """Return the settings of one table, as those of a pipeline without a route."""
    own = {name: section for name, section in tree.items() if name != "route"}
    source = section_of(tree, "source")
    if source.get("kind", "kafka") == "kafka" and source:
        own["source"] = {"max_records_per_batch": _MAX_RECORDS_PER_BATCH, **source}
    return {**replace_placeholder(own, VALUE, value), "name": pipeline_name(tree, value)}


def check_routed_tree(tree: Mapping[str, object]) -> list[Problem]:
    """Return why the settings cannot be those of many tables."""
    return [
        *_missing_placeholders(tree),
        *lock_problems(tree, VALUE),
        *_fixed_catalogs(tree),
        *_misplaced(tree),
    ]


def parent_of(path: str) -> str:
    """Return the folder that contains all tables whose path contains the placeholder."""
    return path[: path.index(VALUE)].rpartition("/")[0]


def _missing_placeholders(tree: Mapping[str, object]) -> Iterator[Problem]:
    for section, name in _DIFFERENT:
        given = section_of(tree, section).get(name)
        if isinstance(given, str) and VALUE not in given:
            text = f"expected a text with {VALUE}, because each value of the route has a table"
            yield Problem(f"{section}.{name}", f"{given}: {text}")


def _misplaced(tree: Mapping[str, object]) -> Iterator[Problem]:
    for section in ("table", "dead_letters"):
        path = section_of(tree, section).get("path")
        found = _BUCKET.match(path) if isinstance(path, str) else None
        if found is not None and VALUE in found[0]:
            text = f"{path}: expected {VALUE} in the path, not in the name of the bucket"
            yield Problem(f"{section}.path", text)
    if VALUE in str(tree.get("name", "")):
        text = f"is the name of the whole pipeline; tables are named by table.path, so omit {VALUE}"
        yield Problem("name", text)
    source = section_of(tree, "source")
    for name in ("checkpoint_id", "commit_group"):
        if VALUE in str(source.get(name, "")):
            text = f"{source[name]}: the topic is read once for all tables, so omit {VALUE}"
            yield Problem(f"source.{name}", text)
    if source.get("topics") or source.get("topic_pattern"):
        text = "a route divides one topic; write a file for each topic, with source.topic"
        yield Problem("route", text)


def _fixed_catalogs(tree: Mapping[str, object]) -> Iterator[Problem]:
    catalogs = tree.get("catalogs")
    for position, one in enumerate(catalogs if isinstance(catalogs, list) else ()):
        for name in ("table", "location"):
            if isinstance(one, Mapping) and one.get(name):
                text = (
                    "each value of the route has a table of its own; omit it, so that it is derived"
                )
                yield Problem(f"catalogs.{position}.{name}", f"{one[name]}: {text}")
