"""A rule about one property of a table: what reading and writing do with its value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from lakemark.config.table_properties import TableProperties


class Purpose(IntEnum):
    """What a table is opened for. A property that refuses one purpose refuses all later ones."""

    READ = 0
    #: Table services, rollbacks, restores, version changes: no row changes its key or values.
    MAINTAIN = 1
    #: Records are inserted, updated or deleted.
    WRITE = 2


#: In ``Refusal.values``: no value is accepted.
ANY_VALUE = "any value"


class Effect(StrEnum):
    """What is done with the value of a property that is not refused."""

    HONOUR = "honour"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Values of a property for which a table is refused.

    Attributes:
        since: the first purpose that is refused.
        values: the values, as the page names them.
        applies: whether the table has such a value; called with the value, "" for none.
        because: continues "<property> is <value>, ".
        remedy: what to do about it.
    """

    since: Purpose
    values: str
    applies: Callable[[TableProperties, str], bool]
    because: str
    remedy: str


@dataclass(frozen=True, slots=True)
class PropertyRule:
    """What reading and writing do with one property.

    Attributes:
        key: of the property; one that ends with ``*`` is the prefix of several.
        reading: what reading does with values that it does not refuse.
        writing: what writing does with values that it does not refuse.
        why: the reason in a few words, for the page.
        refusals: values for which the table is refused.
    """

    key: str
    reading: Effect
    writing: Effect
    why: str
    refusals: tuple[Refusal, ...] = ()
