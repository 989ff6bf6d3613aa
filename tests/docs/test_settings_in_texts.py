"""Each setting that a page or a message names exists, and accepts the value of the page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from streamer.config.pipeline import PipelineConfig
from streamer.config.render import json_schema

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]

#: The packages with messages for the writer of a pipeline file.
CODE = [
    file
    for package in ("streamer", "sinks", "transforms", "checkpoints")
    for file in sorted((ROOT / package).rglob("*.py"))
]

SCHEMA = json_schema()
SECTIONS = "|".join(sorted(SCHEMA["properties"].keys() & set(PipelineConfig.model_fields)))

#: A setting in a text: its path, and a value if there is one.
_NAMED = re.compile(rf"`((?:{SECTIONS})(?:\.[a-z_]+)+)(?::\s+([^`]+)|`\s+is\s+`([^`]+))?`")

#: The first cell of a table's head and of its rows.
_TABLE = re.compile(rf"^\| `((?:{SECTIONS})(?:\.[a-z_]+)+)`.*\n\|-.*\n((?:\|.*\n)*)", re.MULTILINE)

#: Names in the texts that look like settings: of Spark, of Hudi's files, of modules of the code, of
#: fields of Debezium's events.
_OTHERS = re.compile(
    r"^(?:spark\.(?!conf|master)|metrics\.json|source\.checkpoint\b|source\.(?:lsn|version)$)"
)


def named_settings(text: str) -> Iterator[tuple[str, str]]:
    """Find the settings that a text names, each with its value, or "" if it has none."""
    for path, value, other in _NAMED.findall(text):
        if not _OTHERS.match(path):
            yield path, value or other
    for path, rows in _TABLE.findall(text):
        for value in re.findall(r"^\| `([^`]+)`", rows, re.MULTILINE):
            yield path, value


#: A setting in a message, which has no marks around it.
_IN_MESSAGE = re.compile(rf"(?<![\w./-])(?:{SECTIONS})(?:\.[a-z_]+)+(?![\w(/])")

#: Like ``_OTHERS``, for messages: also the names of pages, and fields of Debezium's events.
_OTHERS_IN_MESSAGE = re.compile(rf"{_OTHERS.pattern}|^source\.ts_ms$|\.md$")


def named_in_messages(code: str) -> Iterator[str]:
    """Find the settings in the texts of a module: in its strings with spaces, without docstrings.

    A string without a space is no text for people, but often the name of a metric or module.
    """
    tree = ast.parse(code)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if id(node) not in docs and " " in node.value:
            found = _IN_MESSAGE.findall(node.value)
            yield from (name for name in found if not _OTHERS_IN_MESSAGE.search(name))


def schemas_at(path: str) -> list[Mapping[str, Any]]:
    """Return the schemas of a setting. There are several if its section depends on the format."""
    found: list[Mapping[str, Any]] = [SCHEMA]
    for name in path.split("."):
        found = [child for schema in found for child in _children(schema, name)]
    return [choice for schema in found for choice in _choices(schema)]


def _children(schema: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    for choice in _choices(schema):
        if "items" in choice:
            yield from _children(choice["items"], name)
        if name in choice.get("properties", {}):
            yield choice["properties"][name]
        elif isinstance(choice.get("additionalProperties"), dict):
            yield {}  # any name, such as spark.conf has


def _choices(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Resolve the references and alternatives of a schema."""
    if "$ref" in schema:
        yield from _choices(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]])
        return
    others = [one for key in ("anyOf", "oneOf", "allOf") for one in schema.get(key, ())]
    if not others:
        yield schema
    for other in others:
        yield from _choices(other)


def accepts(path: str, value: str) -> bool:
    """Whether a setting exists, and its list of words, if it has one, contains the value."""
    schemas = schemas_at(path)
    words = [str(w) for s in schemas for w in [*s.get("enum", ()), *filter(None, [s.get("const")])]]
    takes_others = any(
        not {"enum", "const"} & s.keys() and s.get("type") != "null" for s in schemas
    )
    return bool(schemas) and (not value or not words or takes_others or value in words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_in_texts_exist_and_accept_their_values(page: Path) -> None:
    wrong = [one for one in named_settings(page.read_text()) if not accepts(*one)]
    assert not wrong


def test_settings_in_messages_exist() -> None:
    wrong = {
        (str(file.relative_to(ROOT)), name)
        for file in CODE
        for name in named_in_messages(file.read_text())
        if not accepts(name, "")
    }
    assert not wrong


def test_a_wrong_name_in_a_message_is_noticed() -> None:
    code = 'def f() -> None:\n    """About table.bukets."""\n    g(f"{x}: set table.bukets")\n'
    assert list(named_in_messages(code)) == ["table.bukets"]


def test_a_wrong_name_or_value_is_noticed() -> None:
    assert not accepts("table.partition_change", "refuse")
    assert not accepts("decode.unknown_schema", "stop")
    assert not accepts("table.bukets", "")
    assert accepts("table.partition_change", "reject")
    assert accepts("compaction.after_commits", "5")
    shown = "| `decode.wider_values` | what happens |\n|---|---|\n| `drop` | it is gone |\n"
    assert list(named_settings(shown)) == [
        ("decode.wider_values", ""),
        ("decode.wider_values", "drop"),
    ]
