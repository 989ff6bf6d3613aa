"""What every section of a pipeline file has in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict


class Section(BaseModel):
    """A frozen group of settings; a name it does not know is refused, not ignored."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


def _as_list(given: object) -> object:
    return [given] if isinstance(given, str) else given


def _names(columns: tuple[str, ...]) -> tuple[str, ...]:
    if "" in columns or len(set(columns)) < len(columns):
        message = "expected names of columns, each once"
        raise ValueError(message)
    return columns


#: Names of columns; one name may stand without brackets.
Columns = Annotated[tuple[str, ...], BeforeValidator(_as_list), AfterValidator(_names)]
