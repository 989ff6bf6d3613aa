"""``route``: divides the records of one topic among many tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from streamer.config.decode import DecodeConfig
from streamer.config.errors import Problem
from streamer.config.section import FromList, Location, Section

#: The formats whose values have fields that name a table.
_FORMATS_WITH_FIELDS = ("json", "avro")


def _names_or_pattern(given: object) -> object:
    if isinstance(given, str):
        try:
            re.compile(given)
        except re.error as error:
            message = (
                "expected a list of names, such as [orders, returns], or a regular expression of "
                f"Python, such as 'shop_.*': {error}"
            )
            raise ValueError(message) from None
        return given
    return given


def _each_once(names: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    if isinstance(names, tuple) and (not names or len(set(names)) < len(names)):
        message = "expected at least one name, and each name once"
        raise ValueError(message)
    return names


class RouteConfig(Section):
    """Divides the records of the topic among many tables, by a field or a header of each record.

    The topic is read once. `{value}` in `table.path` stands for the value of the field or header.
    See [Many tables from one topic](many_tables.md#many-tables-from-one-topic).
    """

    field: Annotated[str, Field(min_length=1)] | None = None
    """The field of the value whose text names the table of the record; with dots inside objects,
    such as `meta.type`. Only for `decode.format` `json` and `avro`."""

    header: Annotated[str, Field(min_length=1)] | None = None
    """The header of the record whose text names the table. If a record has several headers of this
    name, the last one counts. Give either `field` or `header`."""

    allow: Annotated[
        str | Annotated[tuple[str, ...], FromList] | None,
        BeforeValidator(_names_or_pattern),
        AfterValidator(_each_once),
    ] = None
    """The values that may name a table: a list, or a regular expression of Python that matches the
    whole value. Records with other values become dead letters. Default: all values."""

    default: Annotated[str, Field(min_length=1)] | None = None
    """The table of records whose field or header is null or missing. Default: such records become
    dead letters."""

    max_tables: Annotated[int, Field(ge=1, le=10_000)] = 500
    """The largest number of tables. Records that need a further table become dead letters."""

    dead_letters: Location | None = None
    """The dead-letter table of the records that belong to no table. Default: the name of the
    pipeline followed by `_dead_letters`, in the folder of `table.path` that contains all tables."""

    positions: Location | None = None
    """The folder that stores how far the topic is read. Default: `.lakemark/` and the name of the
    topic (with `source.checkpoint_id`, if it is set), in the folder that contains all tables."""

    value: Annotated[str, Field(min_length=1)] | None = None
    """Only for commands that work on one table, such as `lakemark doctor FILE --set
    route.value=orders`: the value that names the table."""

    def allows(self, value: str) -> bool:
        """Return whether a value may name a table."""
        if self.allow is None:
            return True
        if isinstance(self.allow, str):
            return re.fullmatch(self.allow, value) is not None
        return value in self.allow


def route_problems(
    route: RouteConfig | None, decode: DecodeConfig, format: str
) -> Iterator[Problem]:
    """Yield the reasons why a route cannot find the tables of records.

    Args:
        route: the section; None if the pipeline has none.
        decode: the section ``decode``.
        format: its format.
    """
    if route is None:
        return
    if (route.field is None) == (route.header is None):
        yield Problem("route", "expected either field or header, which names the table of a record")
    if route.field is not None and format not in _FORMATS_WITH_FIELDS:
        text = (
            f"only values of decode.format {' and '.join(_FORMATS_WITH_FIELDS)} have such fields, "
            f"but this is {format}; route by a header (route.header)"
        )
        yield Problem("route.field", text)
