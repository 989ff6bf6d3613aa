"""The options of the data source ``lakemark``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from lakemark.errors import InvalidConfig
from lakemark.operations.change_feed import FeedType
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.read.queries import Incremental, Query, ReadOptimized, Snapshot
from lakemark.storage import StorageLocation

FORMAT = "lakemark"

_PATH = "path"
_STORAGE = "storage."
_QUERIES = ("snapshot", "read_optimized", "incremental", "cdc")
_OPTIONS = ("query", "as_of", "begin", "end", "where", "columns", "commits_per_batch")


@dataclass(frozen=True)
class SourceOptions:
    """Options that a user has given to a reader; can be pickled.

    Attributes:
        given: the options by name.
    """

    given: Mapping[str, str]

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SourceOptions:
        """Return the options, after their names were checked.

        Raises:
            InvalidConfig: an option is unknown, or the path of the table is missing.
        """
        for name in given:
            if name not in (*_OPTIONS, _PATH) and not name.startswith(_STORAGE):
                near = difflib.get_close_matches(name, _OPTIONS, n=1)
                hint = f"did you mean {near[0]}?" if near else f"options: {', '.join(_OPTIONS)}"
                message = f"format {FORMAT} has no option {name!r}; {hint} (and {_STORAGE}<name>)"
                raise InvalidConfig(message)
        if _PATH not in given:
            message = "the path of the table is missing; pass it to load(…)"
            raise InvalidConfig(message)
        return cls(dict(given))

    def open_table(self) -> OpenTable:
        """Open the table; errors as for ``open_table``."""
        given = self.given
        storage = {k.removeprefix(_STORAGE): v for k, v in given.items() if k.startswith(_STORAGE)}
        return open_table(StorageLocation(given[_PATH], storage))

    @cached_property
    def kind(self) -> str:
        """The type of the query.

        Raises:
            InvalidConfig: the type is unknown, or options do not fit it.
        """
        kind = self.given.get("query", _QUERIES[0])
        if kind not in _QUERIES:
            message = f"option query is {kind!r}; pass one of {', '.join(_QUERIES)}"
            raise InvalidConfig(message)
        if kind in tuple(FeedType):
            self._refuse(f"query {kind}", "as_of")
            if "begin" not in self.given:
                message = f"query {kind} needs the option begin: an instant, a date, or earliest"
                raise InvalidConfig(message)
        else:
            self._refuse(f"query {kind}", "begin", "end")
        if kind == FeedType.CDC:
            self._refuse(f"query {kind}", "where", "columns")
        return kind

    def query(self) -> Query:
        """Return the query of a batch that is not a CDC query. Raises what ``kind`` raises."""
        as_of = self.given.get("as_of")
        match self.kind:
            case FeedType.INCREMENTAL:
                return Incremental(self.begin, self.end)
            case "read_optimized":
                return ReadOptimized(as_of)
            case _:
                return Snapshot(as_of)

    @property
    def begin(self) -> str:
        """The beginning of the range of an incremental or CDC query."""
        return self.given["begin"]

    @property
    def end(self) -> str | None:
        """The end of this range; None if it has no end."""
        return self.given.get("end")

    @property
    def where(self) -> str | None:
        """The condition on rows."""
        return self.given.get("where")

    @property
    def columns(self) -> list[str] | None:
        """The columns of the result; None for all columns."""
        listed = self.given.get("columns")
        return None if listed is None else [name.strip() for name in listed.split(",")]

    def check_batch(self) -> None:
        """Check that no option is only for streams.

        Raises:
            InvalidConfig: there is such an option.
        """
        self._refuse("spark.read; it needs spark.readStream", "commits_per_batch")

    def feed_type(self) -> FeedType:
        """Return the type of a stream.

        Raises:
            InvalidConfig: the query cannot be streamed, or an option is only for batches.
        """
        if self.kind not in tuple(FeedType):
            message = (
                f"query {self.kind} cannot be read as a stream; pass the option query: "
                f"{' or '.join(FeedType)}"
            )
            raise InvalidConfig(message)
        self._refuse("spark.readStream", "end")
        return FeedType(self.kind)

    @property
    def commits_per_batch(self) -> int | None:
        """How many commits a micro-batch may contain; None if there is no limit.

        Raises:
            InvalidConfig: it is not a positive number.
        """
        text = self.given.get("commits_per_batch")
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            message = f"option commits_per_batch is {text!r}; pass a whole number from 1 on"
            raise InvalidConfig(message)
        return int(text)

    def _refuse(self, other: str, *names: str) -> None:
        for name in names:
            if name in self.given:
                message = f"option {name} cannot be used with {other}; remove it"
                raise InvalidConfig(message)
