"""Writes a pipeline file, with comments, from its settings."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import yaml

from streamer.config.load import split_path
from streamer.config.pipeline import PipelineConfig
from streamer.migration.outcome import Sets

_WIDTH = 100
_INDENT = "  "

#: The settings below a section, and further sections.
_Tree: TypeAlias = "dict[str, Sets | _Tree]"


def render_pipeline(settings: Sequence[Sets], head: str) -> str:
    """Return the text of a pipeline file.

    Sections have the order of the reference of the pipeline file; the settings of a section have
    the given order.

    Args:
        settings: the settings; each path occurs once.
        head: the comment at the beginning.
    """
    tree: _Tree = {}
    for one in settings:
        _insert(tree, split_path(one.path), one)
    order = list(PipelineConfig.model_fields)
    sections = {name: tree[name] for name in sorted(tree, key=order.index)}
    return "\n".join([*comment_lines(head, ""), *_lines(sections, "")]) + "\n"


def add_to_head(pipeline: str, lines: Sequence[str]) -> str:
    """Return the text of a pipeline file with further lines after the comment at its beginning."""
    given = pipeline.splitlines()
    end = next(n for n, line in enumerate(given) if not line.startswith("#"))
    return "\n".join([*given[:end], *lines, *given[end:]]) + "\n"


def _insert(tree: _Tree, path: Sequence[str], setting: Sets) -> None:
    *sections, name = path
    for section in sections:
        inner = tree.setdefault(section, {})
        assert isinstance(inner, dict), setting
        tree = inner
    assert name not in tree, setting
    tree[name] = setting


def _lines(tree: Mapping[str, Sets | _Tree], indent: str) -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield f"{indent}{_inline(name)}:"
            yield from _lines(value, indent + _INDENT)
            continue
        yield from comment_lines(value.comment, indent)
        if isinstance(value.value, list) and any(isinstance(one, dict) for one in value.value):
            yield f"{indent}{name}:"
            for one in value.value:
                yield from _step(one, indent + _INDENT)
        else:
            yield f"{indent}{_inline(name)}: {_inline(value.value)}"


def _step(step: Mapping[str, object], indent: str) -> Iterator[str]:
    """Yield the lines of a step: one, unless a text of the step has several lines."""
    if not any(isinstance(one, str) and "\n" in one for one in step.values()):
        yield f"{indent}- {_inline(step)}"
        return
    mark = "- "
    for name, value in step.items():
        first, *others = _block(value) or [_inline(value)]
        yield f"{indent}{mark}{name}: {first}"
        yield from (f"{indent}{_INDENT * 2}{line}" if line else "" for line in others)
        mark = _INDENT


def _block(value: object) -> list[str]:
    """Return the lines of a text as YAML's block; none if a block would change the text."""
    if not isinstance(value, str) or "\n" not in value:
        return []
    lines = ["|-", *value.split("\n")]
    try:
        read = yaml.safe_load("\n".join([f"{_INDENT}{line}" for line in lines]))
    except yaml.YAMLError:
        return []
    return lines if read == value else []


def comment_lines(text: str, indent: str) -> list[str]:
    """Return a text as the lines of a comment in a pipeline file.

    Args:
        text: the text.
        indent: the spaces before each line.
    """
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=f"{indent}# ",
        subsequent_indent=f"{indent}# ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _inline(value: object) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(
        value, default_flow_style=True, width=float("inf"), sort_keys=False, allow_unicode=True
    )
    return text.removesuffix("...\n").strip()
