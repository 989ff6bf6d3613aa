"""The type of the rules about properties of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from lakemark.config.table_properties import TableProperties


class Purpose(IntEnum):
    """Purpose of opening a table. A property that refuses one purpose refuses all later ones."""

    READ = 0
    #: Table services, rollbacks, restores, version changes: no row changes its key or values.
    MAINTAIN = 1
    #: Records are inserted, updated or deleted.
    WRITE = 2


#: In ``Refusal.values``: no value is accepted.
ANY_VALUE = "any value"


class Effect(StrEnum):
    """Effect of a property whose value is not refused."""

    HONOUR = "honour"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Values of a property for which a table is refused.

    Attributes:
        since: the first purpose that is refused.
        values: a description of the values, for the page.
        applies: whether the table has such a value; called with the value, "" for none.
        because: the reason; continues "<property> is <value>, ".
        remedy: what the user can do.
    """

    since: Purpose
    values: str
    applies: Callable[[TableProperties, str], bool]
    because: str
    remedy: str


@dataclass(frozen=True, slots=True)
class PropertyRule:
    """The effect of one property on reading and writing.

    Attributes:
        key: of the property; a key that ends with ``*`` is a prefix.
        reading: effect of values that reading does not refuse.
        writing: effect of values that writing does not refuse.
        why: the reason in a few words, for the page.
        refusals: values for which the table is refused.
    """

    key: str
    reading: Effect
    writing: Effect
    why: str
    refusals: tuple[Refusal, ...] = ()
