"""The reference of the pipeline file (``docs/pipeline.md``), printed from the settings."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from streamer.config.pipeline import PipelineConfig
from streamer.config.problems import sections_in

_HEAD = """# The pipeline file

One YAML file describes one topic and one table. It may lie on any storage
(`lakemark run s3://config/orders.yaml`). Unknown keys are refused, not ignored. A value may be
overridden on the command line: `--set table.buckets=16`.

A setting of `source.consumer`, `table.storage`, `spark.conf` or
`decode.schema_registry.access` is a value, `{env: NAME}` for an
environment variable, or `{file: PATH}` for the text of a file. What is secret by its name or its
text is never printed, and does not stand on the command line of a Spark that lakemark starts.
`docs/pipeline.schema.json` is the same as a JSON schema, for editors.
"""


def reference() -> str:
    """The whole page, in Markdown."""
    return "\n".join([_HEAD, *_section("", PipelineConfig)])


def _section(
    path: str, model: type[BaseModel], title: str = "", shown: Collection[str] = ()
) -> Iterator[str]:
    """A section and those below it.

    Args:
        path: of the section.
        model: its settings.
        title: more of its heading.
        shown: names of settings that were shown for another format.
    """
    plain = {n: f for n, f in model.model_fields.items() if not _nested(f) and n not in shown}
    nested = {n: _nested(f) for n, f in model.model_fields.items() if _nested(f)}
    if plain:
        yield from (f"## `{path}`{title}\n", f"{_text(model.__doc__)}\n") if path else ()
        yield "| setting | default | meaning |\n|---|---|---|"
        for name, field in plain.items():
            yield f"| `{field.alias or name}` | {_default(field)} | {_text(field.description)} |"
        yield ""
    for name, (first, *others) in nested.items():
        inner = f"{path}.{name}".lstrip(".")
        yield from _section(inner, first)
        common = set(first.model_fields) - {"format"}
        for other in others:
            (only,) = get_args(other.model_fields["format"].annotation)
            yield from _section(inner, other, f", `format: {only}`", common)


def _nested(field: FieldInfo) -> list[type[BaseModel]]:
    return sections_in(field.annotation)


def _default(field: FieldInfo) -> str:
    value = field.default
    if field.is_required() or value is PydanticUndefined:
        return "required" if field.is_required() else ""
    if value in (None, "", ()):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _text(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|").replace("``", "`")
