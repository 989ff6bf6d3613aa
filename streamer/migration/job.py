"""A job of HoodieStreamer: its options and its properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamer.migration.command_line import parse_arguments
from streamer.migration.outcome import Harmless
from streamer.migration.properties import Property, parse_property
from streamer.migration.rules import OPTIONS, canonical_name

TARGET_PATH, TARGET_TABLE, TABLE_TYPE = "--target-base-path", "--target-table", "--table-type"
SOURCE_CLASS, HOODIE_CONF, PROPS = "--source-class", "--hoodie-conf", "--props"

#: An option that may be repeated, and whose values are joined.
_LISTS = ("--transformer-class",)


@dataclass(frozen=True)
class Job:
    """The settings of a job, by the names that rules have.

    Attributes:
        values: the value of each option and property. An option begins with ``--``.
        given: the name that the user wrote for each of them.
        source_schema: the Avro schema file that the user names, in addition to the job's settings.
        replaced: options and properties that another one of the same meaning replaces.
    """

    values: Mapping[str, str]
    given: Mapping[str, str] = field(default_factory=dict)
    source_schema: str | None = None
    replaced: tuple[Harmless, ...] = ()

    @classmethod
    def parse(
        cls, properties: Sequence[Property], words: Sequence[str], source_schema: str | None = None
    ) -> Job:
        """Combine the properties of a file with the arguments of a job.

        Args:
            properties: the properties of the file.
            words: the arguments of HoodieStreamer.
            source_schema: see ``source_schema``.

        Raises:
            InvalidConfig: an argument is not one of HoodieStreamer.
        """
        options = parse_arguments(words, OPTIONS)
        overrides = [parse_property(value) for name, value in options if name == HOODIE_CONF]
        named = [*properties, *(one for one in overrides if one is not None)]
        values, given, replaced = _by_rule(dict(named))
        for name, value in options:
            if name == HOODIE_CONF:
                continue
            joined = name in _LISTS and name in values
            values[name] = f"{values[name]},{value}" if joined else value
        return cls(values, given, source_schema, tuple(replaced))

    def get(self, name: str, default: str = "") -> str:
        """Return a value without the spaces around it; the default if it is not given."""
        return self.values.get(name, default).strip()

    def has(self, name: str) -> bool:
        """Return whether a value is given that is not empty."""
        return bool(self.get(name))

    def is_set(self, name: str) -> bool:
        """Return whether a boolean is given and true."""
        return self.get(name).lower() == "true"

    def named(self, *names: str) -> tuple[str, ...]:
        """Return those of the options and properties that are given, even if they are empty."""
        return tuple(name for name in names if name in self.values)

    def first(self, *names: str) -> str | None:
        """Return the first of these options and properties that is given and not empty."""
        return next((name for name in names if self.has(name)), None)

    @property
    def is_merge_on_read(self) -> bool:
        """Whether the table is merge-on-read."""
        return self.get(TABLE_TYPE).upper() == "MERGE_ON_READ"


def _by_rule(
    properties: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str], list[Harmless]]:
    """Return values and written names by the names of rules, and the names that do not count."""
    values: dict[str, str] = {}
    given: dict[str, str] = {}
    replaced: list[Harmless] = []
    # HoodieStreamer prefers the current name of a property, wherever it is written.
    for written in sorted(properties, key=lambda name: canonical_name(name) != name):
        name = canonical_name(written)
        if name in values:
            replaced.append(Harmless((written,), f"HoodieStreamer uses {given[name]} instead"))
            continue
        values[name], given[name] = properties[written], written
    return values, given, replaced
