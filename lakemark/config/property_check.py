"""Judges whether a table's properties allow it to be read, maintained or written here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakemark.config.property_rule import PropertyRule, Purpose
from lakemark.config.property_rules import REMOVE_PROPERTY, RULES, USER_NOTES
from lakemark.config.table_properties import TableProperties
from lakemark.errors import Unsupported

_RULE_BY_KEY = {rule.key: rule for rule in RULES}

#: Characters of a value that an error shows.
_SHOWN_LENGTH = 120

_UNKNOWN = "which is unknown here and may require of writers what is not implemented here"
_OUTER_SPACES = (
    "which begins or ends with a space, and Apache Hudi treats the space as part of the value"
)
_REMOVE_SPACES = "remove the space from the value in .hoodie/hoodie.properties"


@dataclass(frozen=True, slots=True)
class PropertyProblem:
    """A property for which a table is refused.

    Attributes:
        key: of the property.
        value: its value.
        because: the reason, as a clause after the value.
        remedy: what the user can do.
    """

    key: str
    value: str
    because: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.key} is {_shown(self.key, self.value)}, {self.because}; {self.remedy}"


def check_allows(properties: TableProperties, purpose: Purpose, url: str) -> None:
    """Check that a table may be read, maintained or written.

    Args:
        properties: of the table.
        purpose: for which the table is opened.
        url: of the table, for the error.

    Raises:
        Unsupported: a property does not allow it. The message names each such property, its value
            and the remedy.
    """
    found = [str(problem) for problem in find_problems(properties, purpose)]
    if found:
        verb = {Purpose.READ: "read", Purpose.MAINTAIN: "changed", Purpose.WRITE: "written"}
        message = f"table {url} cannot be {verb[purpose]} here: " + "\n".join(found)
        raise Unsupported(message)


def find_problems(properties: TableProperties, purpose: Purpose) -> Iterator[PropertyProblem]:
    """Find the properties of a table that do not allow a purpose, in the order of the rules."""
    values = properties.values
    for rule in RULES:
        for key in _stored_keys(rule, values):
            value = values.get(key, "")
            for refusal in rule.refusals:
                if refusal.since <= purpose and refusal.applies(properties, value):
                    yield PropertyProblem(key, value, refusal.because, refusal.remedy)
                    break
    if purpose > Purpose.READ:
        for key in sorted(key for key in values if find_rule(key) is None):
            yield PropertyProblem(key, values[key], _UNKNOWN, REMOVE_PROPERTY)
        for key in sorted(key for key in values if _has_outer_spaces(key, values[key])):
            yield PropertyProblem(key, values[key], _OUTER_SPACES, _REMOVE_SPACES)


def find_rule(key: str) -> PropertyRule | None:
    """Find the rule of a property; None if there is none, so that its meaning is unknown."""
    if not key.startswith(("hoodie.", "_hoodie.")):
        return USER_NOTES
    if key in _RULE_BY_KEY:
        return _RULE_BY_KEY[key]
    prefixed = (rule for rule in RULES if rule.key.endswith("*"))
    return next((rule for rule in prefixed if key.startswith(rule.key[:-1])), None)


def _has_outer_spaces(key: str, value: str) -> bool:
    return find_rule(key) is not USER_NOTES and value != value.strip()


def _stored_keys(rule: PropertyRule, values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the key of a rule; if it is a prefix, the keys of the table that have it."""
    if not rule.key.endswith("*"):
        return (rule.key,)
    return tuple(sorted(key for key in values if find_rule(key) is rule))


def _shown(key: str, value: str) -> str:
    if any(word in key for word in ("password", "secret", "token", "credential")):
        return "set"
    return repr(value if len(value) <= _SHOWN_LENGTH else value[:_SHOWN_LENGTH] + "…")
