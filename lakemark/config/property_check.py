"""Checks whether the properties of a table allow lakemark to read, maintain or write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from lakemark.config.property_rule import REMOVE_PROPERTY, PropertyRule, Purpose
from lakemark.config.property_rules import RULES, USER_NOTES
from lakemark.config.table_properties import TableProperties
from lakemark.errors import Unsupported

_RULE_BY_KEY = {rule.key: rule for rule in RULES}

#: Number of characters of a value that an error shows.
_SHOWN_LENGTH = 120

_UNKNOWN = (
    "which lakemark does not know, and which may require something of writers that lakemark does "
    "not implement"
)
_OUTER_SPACES = (
    "which begins or ends with a space, and Apache Hudi treats the space as part of the value"
)
_REMOVE_SPACES = "remove the space from the value in .hoodie/hoodie.properties"


#: How many sets of properties are remembered after their check.
_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class PropertyProblem:
    """A property because of which a table is refused.

    Attributes:
        key: key of the property.
        value: value of the property.
        because: the reason, as a clause that continues "<key> is <value>, ".
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
        properties: properties of the table.
        purpose: purpose for which the table is opened.
        url: URL of the table, for the error.

    Raises:
        Unsupported: a property does not allow this purpose. The message names each such property,
            its value and the remedy.
    """
    if not _are_allowed(frozenset(properties.values.items()), purpose):
        found = [str(problem) for problem in find_problems(properties, purpose)]
        verb = {Purpose.READ: "read", Purpose.MAINTAIN: "changed", Purpose.WRITE: "written"}
        message = f"table {url} cannot be {verb[purpose]} by lakemark: " + "\n".join(found)
        raise Unsupported(message)


@lru_cache(_REMEMBERED)
def _are_allowed(values: frozenset[tuple[str, str]], purpose: Purpose) -> bool:
    """Return whether all properties allow a purpose.

    The result is remembered, because each commit checks the same properties again.
    """
    return not any(find_problems(TableProperties(dict(values)), purpose))


def find_problems(properties: TableProperties, purpose: Purpose) -> Iterator[PropertyProblem]:
    """Yield the properties of a table that do not allow a purpose, in the order of the rules."""
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
    """Return the rule of a property; None if lakemark does not know the property."""
    if not key.startswith(("hoodie.", "_hoodie.", "lakemark.")):
        return USER_NOTES
    if key in _RULE_BY_KEY:
        return _RULE_BY_KEY[key]
    prefixed = (rule for rule in RULES if rule.key.endswith("*"))
    return next((rule for rule in prefixed if key.startswith(rule.key[:-1])), None)


def _has_outer_spaces(key: str, value: str) -> bool:
    return find_rule(key) is not USER_NOTES and value != value.strip()


def _stored_keys(rule: PropertyRule, values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the key of a rule; if the key is a prefix, the table's keys with this prefix."""
    if not rule.key.endswith("*"):
        return (rule.key,)
    return tuple(sorted(key for key in values if find_rule(key) is rule))


def _shown(key: str, value: str) -> str:
    if any(word in key for word in ("password", "secret", "token", "credential")):
        return "set"
    return repr(value if len(value) <= _SHOWN_LENGTH else value[:_SHOWN_LENGTH] + "…")
