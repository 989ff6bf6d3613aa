"""What every section of a pipeline file has in common."""

from __future__ import annotations

import os
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from lakemark.errors import HudiError
from lakemark.storage import canonical_url

T = TypeVar("T", bound=str)


class Section(BaseModel):
    """A frozen group of settings; a name it does not know is refused, not ignored.

    Types are strict: YAML has them, so ``true`` is no number and ``1`` no boolean.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )


def is_place(path: str) -> bool:
    """Whether a table may lie there: a local path, or a url of a known store."""
    try:
        _place(path)
    except (HudiError, ValueError):
        return False
    return True


def each_once(names: tuple[T, ...]) -> tuple[T, ...]:
    """The names, none of them empty or there twice.

    Raises:
        ValueError: one is.
    """
    if "" in names or len(set(names)) < len(names):
        message = "expected names of columns, each once"
        raise ValueError(message)
    return names


def _as_tuple(given: object) -> object:
    """YAML has lists, where the settings have what cannot change."""
    return tuple(given) if isinstance(given, list) else given


def _as_names(given: object) -> object:
    return (given,) if isinstance(given, str) else _as_tuple(given)


def _place(path: str) -> str:
    path = os.path.expanduser(path)
    try:
        canonical_url(path)
    except HudiError as error:
        raise ValueError(str(error)) from None
    if path.startswith("~"):
        message = "there is no such user on this machine; write the path from / on, or ./~ for a ~"
        raise ValueError(message)
    return path


#: What is given as a list.
FromList = BeforeValidator(_as_tuple)

#: Where a table lies: a local path, or a url of a known store.
Place = Annotated[str, Field(min_length=1), AfterValidator(_place)]

#: Names of columns; one name may stand without brackets.
Columns = Annotated[tuple[str, ...], BeforeValidator(_as_names), AfterValidator(each_once)]
