"""Whether a table's properties allow it to be read, maintained or written here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakemark.config.property_rule import PropertyRule, Purpose
from lakemark.config.property_rules import REMOVE_PROPERTY, RULES, USER_NOTES, rule_of
from lakemark.config.table_properties import TableProperties
from lakemark.errors import Unsupported

#: Characters of a value that an error shows.
_SHOWN_LENGTH = 120

_UNKNOWN = "which is not known here and may ask writers for something that is not done here"
_OUTER_SPACES = (
    "which begins or ends with a space, and Apache Hudi takes the space as a part of the value"
)
_REMOVE_SPACES = "remove the space from the value in .hoodie/hoodie.properties"


@dataclass(frozen=True, slots=True)
class Problem:
    """A property for which a table is refused, with its value."""

    key: str
    value: str
    because: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.key} is {_shown(self.key, self.value)}, {self.because}; {self.remedy}"


def check_allows(properties: TableProperties, purpose: Purpose, place: str) -> None:
    """Pass when a table may be read, maintained or written.

    Args:
        properties: of the table.
        purpose: what it is opened for.
        place: names the table in the error.

    Raises:
        Unsupported: a property, or its value, does not allow it; the message names the property,
            its value and the remedy, for each property that does not.
    """
    found = [str(problem) for problem in problems(properties, purpose)]
    if found:
        verb = {Purpose.READ: "read", Purpose.MAINTAIN: "changed", Purpose.WRITE: "written"}
        message = f"table {place} cannot be {verb[purpose]} here: " + "\n".join(found)
        raise Unsupported(message)


def problems(properties: TableProperties, purpose: Purpose) -> Iterator[Problem]:
    """The properties of a table that do not allow a purpose, in the order of the rules."""
    values = properties.values
    for rule in RULES:
        for key in _stored_keys(rule, values):
            value = values.get(key, "")
            for refusal in rule.refusals:
                if refusal.since <= purpose and refusal.applies(properties, value):
                    yield Problem(key, value, refusal.because, refusal.remedy)
                    break
    if purpose > Purpose.READ:
        for key in sorted(key for key in values if rule_of(key) is None):
            yield Problem(key, values[key], _UNKNOWN, REMOVE_PROPERTY)
        for key in sorted(key for key in values if _has_outer_spaces(key, values[key])):
            yield Problem(key, values[key], _OUTER_SPACES, _REMOVE_SPACES)


def _has_outer_spaces(key: str, value: str) -> bool:
    return rule_of(key) is not USER_NOTES and value != value.strip()


def _stored_keys(rule: PropertyRule, values: Mapping[str, str]) -> tuple[str, ...]:
    """The keys that a rule judges, whether the table has them; of a prefix those that it has."""
    if not rule.key.endswith("*"):
        return (rule.key,)
    return tuple(sorted(key for key in values if rule_of(key) is rule))


def _shown(key: str, value: str) -> str:
    if any(word in key for word in ("password", "secret", "token", "credential")):
        return "set"
    return repr(value if len(value) <= _SHOWN_LENGTH else value[:_SHOWN_LENGTH] + "…")
