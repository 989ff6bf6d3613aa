"""Renders the page ``docs/hoodiestreamer_settings.md`` from the rules."""

from __future__ import annotations

from collections.abc import Iterable

from streamer.migration.rule import Combined, Direct, Effect, NoCounterpart, NoEffect, Rule
from streamer.migration.rules import SUBJECTS

_HEAD = """# Settings of HoodieStreamer

This page lists the options and properties of HoodieStreamer, with what `lakemark migrate` makes of
each of them. It is generated from the rules that the command applies
(`streamer/migration/rules_of_*.py`). [from_hoodiestreamer.md](from_hoodiestreamer.md) describes how
to continue the table of a job.

A name that ends with `*` stands for all properties with this beginning, except those that have a
row of their own. Former names are accepted, such as `hoodie.deltastreamer.…` and
`hoodie.cleaner.…`. Properties that do not begin with `hoodie.` are those of Kafka's consumer.

- **no effect**: the pipeline does the same without the property.
- **no counterpart**: a pipeline file cannot express the property. The last column says what to do.
- **rows**: `lakemark migrate` ends with exit code 1, because the pipeline writes other rows than
  the job, unless you do something about it.
"""


def render_page() -> str:
    """Return the text of the page."""
    return _HEAD + "".join(f"\n## {name}\n\n{_table(rules)}" for name, rules in SUBJECTS.items())


def _table(rules: Iterable[Rule]) -> str:
    """Return the rows of a subject; rules with the same effect share a row."""
    by_effect: dict[Effect, list[Rule]] = {}
    for rule in rules:
        by_effect.setdefault(rule.effect, []).append(rule)
    rows = "".join(
        f"| {_names(same)} | {_counterpart(effect)} |\n" for effect, same in by_effect.items()
    )
    return f"| HoodieStreamer | lakemark |\n|---|---|\n{rows}"


def _names(rules: Iterable[Rule]) -> str:
    return ", ".join(f"`{name}`" for rule in rules for name in rule.names)


def _counterpart(effect: Effect) -> str:
    if isinstance(effect, Direct):
        return f"`{effect.setting}`"
    if isinstance(effect, Combined):
        return effect.counterpart
    if isinstance(effect, NoEffect):
        return f"no effect: {effect.reason}"
    assert isinstance(effect, NoCounterpart)
    kind = "no counterpart (rows)" if effect.changes_rows else "no counterpart"
    unless = [word for word in effect.unless if word]
    except_for = f", except for {', '.join(f'`{word}`' for word in unless)}" if unless else ""
    return f"{kind}{except_for}: {effect.remedy}"
