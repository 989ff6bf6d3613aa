"""The recipe of one golden table: its options, its history, and the queries of Apache Hudi."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.golden.make.options import Options
from tests.golden.make.table_in_making import TableInMaking

History = Callable[[TableInMaking], None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """The recipe of one table.

    Attributes:
        name: table version, type and special feature; the archive has this name.
        shows: what a reader of the table must support, for the list of tables.
        options: the options of every write; a step may add its own.
        history: runs the steps.
        asks_of_the_past: which of time travel and incremental queries are run.
        asks_each_instant: whether they are run for every instant, not only for the middle one.
        asks_cdc: whether a CDC query from the beginning is run.
        snapshot_by_java: whether Hudi's reader in Java reads the snapshot.
        may_be_refused: the beginning of the names of queries that Apache Hudi may refuse; its error
            is then recorded in place of an answer.
        earlier: what older releases of Apache Hudi write first: the number of each release, and its
            steps. ``history`` follows, by the current release.
    """

    name: str
    shows: str
    options: Options
    history: History
    asks_of_the_past: tuple[str, ...] = ("as_of", "incremental")
    asks_each_instant: bool = False
    asks_cdc: bool = False
    snapshot_by_java: bool = False
    may_be_refused: tuple[str, ...] = ()
    earlier: tuple[tuple[str, History], ...] = ()
