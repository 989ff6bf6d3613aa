"""Translates pydantic's validation errors to problems of the pipeline file.

Each problem is one line: the path of the setting, the value and the accepted values. A value that
is or may be secret is masked. Values of settings that are passed to Kafka, Spark or a store are
omitted.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from streamer.config.errors import Contradiction, Problem
from streamer.config.masking import MASK, SecretGiven, holds_secret, name_only, sounds_secret
from streamer.config.settings import Setting

#: The settings that choose one of several kinds of a section.
TAGS = ("kind", "format", "step")

_MAX_VALUE_LENGTH = 60
_MESSAGES = {
    "tuple_type": "expected a list, such as [a, b]",
    "too_short": "expected at least one",
    "string_too_short": "is empty",
}


def from_validation(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Return the problems of a pipeline file for which the validation by ``model`` failed."""
    return [problem for details in error.errors() for problem in _translate(details, model)]


def section_at(model: type[BaseModel], path: Iterable[int | str]) -> type[BaseModel] | None:
    """Return the section (a model) at ``path`` below ``model``; None if there is none.

    If a section has several formats, ``path`` may contain the format. In a list of sections, it
    contains the position.
    """
    sections = [model]
    for part in path:
        if not isinstance(part, int):  # the position in a list
            sections = _of_format(sections, part) or _sections(sections, part)
    return sections[0] if sections else None


def sections_in(annotation: object) -> list[type[BaseModel]]:
    """Return the sections (models) that a type annotation contains."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Annotated, tuple):
        return sections_in(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [found for option in get_args(annotation) for found in sections_in(option)]
    return []


def setting_names(section: type[BaseModel]) -> list[str]:
    """Return the names of a section's settings in the pipeline file."""
    return [field.alias or name for name, field in section.model_fields.items()]


def _translate(details: ErrorDetails, model: type[BaseModel]) -> list[Problem]:
    error = details.get("ctx", {}).get("error")
    if isinstance(error, Contradiction):
        return list(error.problems)
    location = details["loc"]
    path = ".".join(name_only(str(part)) for part in _without_formats(location, model))
    kind = details["type"]
    if kind == "union_tag_invalid":
        return [Problem(f"{path}.{_tag(details)}", _unknown_kind(details["ctx"]))]
    if kind == "union_tag_not_found":
        kinds = ", ".join(_kinds_at(location, _tag(details), model))
        return [Problem(f"{path}.{_tag(details)}", f"missing; accepted: {kinds}")]
    if kind == "missing":
        return [Problem(path, "missing")]
    if kind == "extra_forbidden":
        return [Problem(path, _unknown_setting(location, model))]
    if _is_passed_on(location, model):
        return [Problem(path, _expected(details))]
    section = section_at(model, location)
    if section is not None:
        return [Problem(path, f"expected a section with {', '.join(setting_names(section))}")]
    shown = MASK if isinstance(error, SecretGiven) else _shown(location, details["input"])
    return [Problem(path, f"{shown}: {_expected(details)}")]


def _tag(details: ErrorDetails) -> str:
    """Return the name of the setting that chooses a kind of section."""
    return str(details["ctx"]["discriminator"]).strip("'")


def _unknown_kind(context: Mapping[str, object]) -> str:
    """Return the problem of a section whose kind is not one of those that its context names."""
    given, expected = str(context["tag"]), str(context["expected_tags"])
    hint = _suggestion(given, [one.strip("'") for one in expected.split(", ")])
    return f"{given!r}: {hint}expected {expected}"


def _kinds_at(location: Sequence[int | str], tag: str, model: type[BaseModel]) -> list[str]:
    """Return the kinds of section that are accepted at a location."""
    sections = [model]
    for part in location:
        if not isinstance(part, int):  # the position in a list
            sections = _sections(sections, part)
    return [kind for one in sections for kind in get_args(_annotation(one, tag))]


def _suggestion(given: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(given, names, n=1)
    return f"did you mean {near[0]}? " if near else ""


def _unknown_setting(location: Sequence[int | str], model: type[BaseModel]) -> str:
    section = section_at(model, location[:-1])
    names = [] if section is None else setting_names(section)
    hint = _suggestion(str(location[-1]), names)
    return f"unknown setting; {hint}accepted: {', '.join(names)}"


#: The setting whose default is a part of another one.
_NAME_OF_TABLE = ("table", "name")


def _expected(details: ErrorDetails) -> str:
    context = details.get("ctx", {})
    if "error" in context:
        return str(context["error"])
    if details["type"] == "literal_error":
        return f"expected {context['expected']}"
    if details["type"] == "string_pattern_mismatch":
        expected = f"expected a text that matches {context['pattern']}"
        if details["loc"][-2:] == _NAME_OF_TABLE:
            return f"{expected}; if it is not set, it is the last part of table.path, so set it"
        return expected
    return _MESSAGES.get(details["type"], details["msg"].removeprefix("Input "))


def _shown(location: Sequence[int | str], value: object) -> str:
    if isinstance(value, Mapping) and not _is_of_numbers(value):
        return "a mapping"
    text = repr(value)
    if holds_secret(text) or any(sounds_secret(str(part)) for part in location):
        return MASK
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}…"


def _is_of_numbers(value: Mapping[object, object]) -> bool:
    """Return whether all values are numbers; only then is the mapping shown in an error.

    A text in it could be a secret, whatever its key is.
    """
    return all(isinstance(one, int | float) for one in value.values())


def _is_passed_on(location: Sequence[int | str], model: type[BaseModel]) -> bool:
    """Return whether a setting is passed to Kafka, Spark or a store, so it may be secret."""
    return Setting in get_args(_annotation(section_at(model, location[:-1]), str(location[-1])))


def _sections(sections: list[type[BaseModel]], name: str) -> list[type[BaseModel]]:
    return [found for one in sections for found in sections_in(_annotation(one, name))]


def _of_format(sections: list[type[BaseModel]], part: int | str) -> list[type[BaseModel]]:
    """Return those of several alternative sections whose choice (``TAGS``) may be ``part``.

    A single section is no choice, so the result is empty.
    """
    if len(sections) < 2:
        return []
    return [one for one in sections for tag in TAGS if part in get_args(_annotation(one, tag))]


def _without_formats(location: Sequence[int | str], model: type[BaseModel]) -> list[int | str]:
    """Remove the chosen values of ``TAGS``, which pydantic adds to the location of an error."""
    sections, kept = [model], []
    for part in location:
        if chosen := _of_format(sections, part):
            sections = chosen
            continue
        kept.append(part)
        if not isinstance(part, int):
            sections = _sections(sections, part)
    return kept


def _annotation(model: type[BaseModel] | None, name: str) -> object:
    for field_name, field in ({} if model is None else model.model_fields).items():
        if name in (field_name, field.alias):
            return field.annotation
    return None
