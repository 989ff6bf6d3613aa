"""How one golden table is made: its options, its history, and what Apache Hudi is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.golden.make.options import Options
from tests.golden.make.table_in_making import TableInMaking

History = Callable[[TableInMaking], None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One table.

    Attributes:
        name: table version, type and what is special, as the archive is called.
        shows: what a reader of the table has to understand, for the list of tables.
        options: of every write; a step may add its own.
        history: the steps.
        asks_of_the_past: which of time travel and incremental queries are asked.
        asks_each_instant: whether they are asked at every instant, not at the middle one alone.
        asks_cdc: whether the changes since the beginning are asked.
        snapshot_by_java: whether the snapshot is what Hudi's reader in Java reads.
        may_be_refused: queries, by the beginning of their names, that Apache Hudi may refuse; what
            it said is kept in the place of an answer.
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
