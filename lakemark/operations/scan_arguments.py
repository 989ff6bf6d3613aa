"""Checks the arguments of ``Table.scan``, so that a mistake cannot return the wrong rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from lakemark.errors import InvalidConfig
from lakemark.read.queries import Query


def check_scan_arguments(query: object, columns: object, record_keys: object) -> None:
    """Check the types of a scan's arguments.

    A single text is refused explicitly, because in Python a text is also a sequence of texts.

    Raises:
        InvalidConfig: ``query`` is not a query, or the columns or keys are not lists of texts.
    """
    if not isinstance(query, get_args(Query)):
        kinds = ", ".join(f"lakemark.{kind.__name__}(…)" for kind in get_args(Query))
        message = f"query is {query!r}; pass one of {kinds}"
        raise InvalidConfig(message)
    _check_texts("columns", columns, "a list of column names")
    _check_texts("record_keys", record_keys, "a list of record keys as text")


def _check_texts(parameter: str, given: object, remedy: str) -> None:
    if given is None:
        return
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        if all(isinstance(text, str) for text in given):
            return
    message = f"{parameter} is {given!r}; pass {remedy}"
    raise InvalidConfig(message)
