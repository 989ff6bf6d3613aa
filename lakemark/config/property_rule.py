"""The types of the rules about table properties, and the remedies that several rules name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from lakemark.config.table_properties import TableProperties


class Purpose(IntEnum):
    """Purpose of opening a table, in ascending order.

    A property that forbids one purpose also forbids all greater ones.
    """

    READ = 0
    #: Run table services, rollbacks, restores or version changes. No new records are written.
    MAINTAIN = 1
    #: Insert, update or delete records.
    WRITE = 2


#: The text of ``Refusal.values`` if no value is accepted.
ANY_VALUE = "any value"

#: Remedy for a property whose meaning for writers is unknown.
REMOVE_PROPERTY = (
    "write with Apache Hudi, or remove the property from .hoodie/hoodie.properties if no writer "
    "and no reader of the table needs it"
)

#: Remedy for a table that lakemark cannot write.
ANOTHER_PATH = "write with Apache Hudi, or write to another path"

#: Remedy for a table that lakemark cannot read.
ONLY_APACHE = "read and write the table with Apache Hudi"

#: Remedy for an index that lakemark does not update.
DROP_METADATA_TABLE = (
    "--drop-metadata-table builds the metadata table again without it (Apache Hudi builds indexes "
    "again when they are configured)"
)


class Effect(StrEnum):
    """Effect of a property if its value is not refused."""

    HONOUR = "honour"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Values of a property because of which a table is refused.

    Attributes:
        since: the first purpose that is refused; later ones are refused too.
        values: a description of the values, for the documentation page.
        applies: a predicate that tells whether the table has such a value (see
            ``property_predicates``).
        because: the reason, as a clause that continues "<property> is <value>, ".
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
        key: key of the property; a key that ends with ``*`` is a prefix.
        reading: the effect that values have on reading, unless they are refused.
        writing: the effect that values have on writing, unless they are refused.
        why: the reason in a few words, for the documentation page.
        refusals: values because of which the table is refused.
    """

    key: str
    reading: Effect
    writing: Effect
    why: str
    refusals: tuple[Refusal, ...] = ()


def honoured(key: str, why: str, *refusals: Refusal) -> PropertyRule:
    """Return the rule of a property that decides what lakemark reads and writes."""
    return PropertyRule(key, Effect.HONOUR, Effect.HONOUR, why, refusals)


def ignored(key: str, why: str, *refusals: Refusal) -> PropertyRule:
    """Return the rule of a property whose value is kept, but not used."""
    return PropertyRule(key, Effect.IGNORE, Effect.IGNORE, why, refusals)
