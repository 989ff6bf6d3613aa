"""Renders the configuration: the reference page, the complete pipeline file, the JSON schema."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from streamer.config.pipeline import PipelineConfig
from streamer.config.problems import TAGS, sections_in
from transforms.schema_text import TYPES

_OTHERS = ", or a value as described"

#: Begins the sentence about a default that depends on other settings.
_DERIVED = "Default: "

_HEAD = """# The pipeline file

A pipeline file is a YAML file that describes a pipeline: a source, by default one Kafka topic, and
a table. It can also describe one pipeline for each of [several
topics](many_tables.md#several-topics), or a pipeline that divides a topic among [many
tables](many_tables.md#many-tables-from-one-topic). The file can be on any supported storage
(`lakemark run s3://config/orders.yaml`). Unknown settings are refused. The command line can
override a setting: `--set table.buckets=16`.

A value in `source.consumer`, `table.storage`, `spark.conf` or `decode.schema_registry.access` is
either the value itself, `{env: NAME}` for an environment variable, or `{file: PATH}` for the text
of a file. A value counts as secret if its name or its text looks like a secret. Secrets are never
printed, and lakemark does not pass them on the command line of Spark. In messages, `***` replaces
each secret and, in a URL, the user, password or token before the host (`https://token@host`).

`docs/pipeline.schema.json` describes the same settings as a JSON schema, for editors.
"""


def render_reference() -> str:
    """Render the reference of the pipeline file (``docs/pipeline.md``) in Markdown."""
    return "\n".join([_HEAD, *_section("", PipelineConfig), *_types()])


def render_yaml(config: PipelineConfig) -> str:
    """Render the complete pipeline as YAML: with defaults, and with masked secrets."""
    tree = config.model_dump(mode="json", by_alias=True)
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a pipeline file, with which editors complete and check the file."""
    schema = PipelineConfig.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _types() -> Iterator[str]:
    """Yield the section about the types of ``decode.schema``."""
    yield "## Types of columns\n"
    yield "The types in `decode.schema`, and the JSON values that fit each. Null always fits.\n"
    yield "| type | JSON value |\n|---|---|"
    for one in TYPES:
        also = f" (also {', '.join(f'`{name}`' for name in one.synonyms)})" if one.synonyms else ""
        yield f"| `{one.name}`{also} | {one.json} |"
    yield ""


def _section(
    path: str, model: type[BaseModel], title: str = "", shown: Collection[str] = ()
) -> Iterator[str]:
    """Render a section and the sections below it.

    Args:
        path: the path of the section.
        model: the model of the section.
        title: the text after the path in the heading.
        shown: the settings to omit, because another format of the section shows them.
    """
    fields = {n: f for n, f in model.model_fields.items() if n not in shown}
    kinds_first = sorted(fields.items(), key=lambda item: item[0] not in TAGS)
    plain = {n: f for n, f in kinds_first if not _nested(f) or _is_repeated(path, n, f)}
    nested = {n: _nested(f) for n, f in fields.items() if n not in plain}
    if plain:
        yield from (f"## `{path}`{title}\n", f"{_text(model.__doc__)}\n") if path else ()
        yield "| setting | default | meaning |\n|---|---|---|"
        for name, field in plain.items():
            meaning = f"{_text(field.description)}{_words(field)}"
            yield f"| `{field.alias or name}` | {_default(field)} | {meaning} |"
        yield ""
    for name, (first, *others) in nested.items():
        inner = f"{path}.{name}".lstrip(".")
        if "step" in first.model_fields:
            yield f"## `{inner}`\n\n{_text(model.model_fields[name].description)}\n"
            for kind in (first, *others):
                yield from _section(inner, kind, _kind(kind), {"step"})
            continue
        yield from _section(inner, first)
        common = set(first.model_fields) - {*TAGS}
        for other in others:
            yield from _section(inner, other, _kind(other), common)
            common |= {n for n, f in other.model_fields.items() if _nested(f)}


def _kind(section: type[BaseModel]) -> str:
    """Return the setting that chooses this kind of a section, for the heading."""
    tag = next(tag for tag in TAGS if tag in section.model_fields)
    (only,) = get_args(section.model_fields[tag].annotation)
    return f", `{tag}: {only}`"


def _nested(field: FieldInfo) -> list[type[BaseModel]]:
    return sections_in(field.annotation)


def _is_repeated(path: str, name: str, field: FieldInfo) -> bool:
    """Return whether the kinds of a section are those of a section of the file, shown there."""
    of_file = PipelineConfig.model_fields.get(name)
    return bool(path) and of_file is not None and {*_nested(field)} <= {*_nested(of_file)}


def _default(field: FieldInfo) -> str:
    value = field.default
    if _DERIVED in (field.description or ""):
        return ""
    if field.is_required() or value is PydanticUndefined:
        return "required" if field.is_required() else ""
    if value in (None, "", ()):
        return ""
    if isinstance(value, tuple):
        return f"`[{', '.join(value)}]`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _words(field: FieldInfo) -> str:
    """Return a sentence with the words that a setting accepts; "" if it accepts no fixed words."""
    words = list(dict.fromkeys(_literals(field.annotation)))
    if not words:
        return ""
    listed = ", ".join(f"`{word}`" for word in words)
    return f" Accepted: {listed}{_OTHERS if _takes_others(field.annotation) else ''}."


def _literals(annotation: object) -> Iterator[object]:
    """Yield the values of every ``Literal`` in a type."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
        return
    for inner in get_args(annotation):
        yield from _literals(inner)


def _takes_others(annotation: object) -> bool:
    """Return whether a type accepts other values than its literals and None."""
    kind, inner = get_origin(annotation), get_args(annotation)
    if kind is Literal or annotation in (None, type(None), Ellipsis):
        return False
    return not inner or kind is dict or any(map(_takes_others, inner))


def _text(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|").replace("``", "`")
