"""The base class and the common types of the sections of a pipeline file."""

from __future__ import annotations

import os
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from lakemark.errors import HudiError
from lakemark.read.where import check_syntax
from lakemark.storage import canonical_url

T = TypeVar("T", bound=str)


class Section(BaseModel):
    """An immutable group of settings. Unknown names are refused.

    Types are strict, because YAML has types: ``true`` is not a number and ``1`` is not a boolean.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )


def is_location(path: str) -> bool:
    """Return whether a table may be at this path: a local path, or a URL of a supported store."""
    try:
        _check_location(path)
    except (HudiError, ValueError):
        return False
    return True


def each_once(names: tuple[T, ...]) -> tuple[T, ...]:
    """Check that no name is empty or repeated.

    Raises:
        ValueError: a name is empty or repeated.
    """
    if "" in names or len(set(names)) < len(names):
        message = "expected names of columns, without repeated names"
        raise ValueError(message)
    return names


def _as_tuple(given: object) -> object:
    """Convert a YAML list to a tuple, which cannot be changed."""
    return tuple(given) if isinstance(given, list) else given


def as_names(given: object) -> object:
    """Convert a YAML list, or one text, to a tuple."""
    return (given,) if isinstance(given, str) else _as_tuple(given)


def _check_location(path: str) -> str:
    path = os.path.expanduser(path)
    try:
        canonical_url(path)
    except HudiError as error:
        raise ValueError(str(error)) from None
    if path.startswith("~"):
        message = "this user does not exist on this machine; write an absolute path, or ./~ for a ~"
        raise ValueError(message)
    return path


def _check_condition(text: str) -> str:
    try:
        check_syntax(text)
    except HudiError as error:
        raise ValueError(str(error)) from None
    return text


#: For a setting that is a list in YAML.
FromList = BeforeValidator(_as_tuple)

#: The path of a table: a local path, or a URL of a supported store.
Location = Annotated[str, Field(min_length=1), AfterValidator(_check_location)]

#: A condition in the language of ``lakemark.read.where``.
Condition = Annotated[str, Field(min_length=1), AfterValidator(_check_condition)]

#: Names of columns; one name may be written without brackets.
Columns = Annotated[tuple[str, ...], BeforeValidator(as_names), AfterValidator(each_once)]
