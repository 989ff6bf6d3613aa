"""Strategies for events of every kind."""

from __future__ import annotations

from dataclasses import fields
from datetime import date
from typing import Any, get_args

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from streamer.events import BatchWritten, ChecksViolated, Event, OffsetsLost, RulesViolated
from transforms.batch_checks import CheckResult, CheckViolation
from transforms.violations import RuleViolations

#: Every class of event.
CLASSES: tuple[type[Any], ...] = get_args(Event)

_counts = st.integers(0, 2**40)
_offsets = st.dictionaries(st.integers(0, 8), _counts, max_size=4)
_instants = st.dates(date(2000, 1, 1)).map(lambda day: day.strftime("%Y%m%d235959123"))
_lost = st.fixed_dictionaries(
    {"topic": st.text(), "partition": st.integers(0, 8), "count": st.none() | _counts}
)
_violations = st.builds(RuleViolations, st.text(), st.text(), _counts, st.text())
_results = st.builds(CheckResult, _counts, st.lists(st.text(), max_size=5).map(tuple), st.text())
_checks = st.builds(CheckViolation, st.text(), st.text(), _results)

#: What only some values of a field's type can be.
_FIELDS: dict[type[Any], dict[str, SearchStrategy[Any]]] = {
    BatchWritten: {
        "instant": st.none() | _instants,
        "stage_s": st.dictionaries(st.text(), st.floats(0, 1e6), max_size=3),
        "lag": _offsets,
    },
    OffsetsLost: {"lost": st.lists(_lost, max_size=3).map(tuple)},
    RulesViolated: {"violations": st.lists(_violations, max_size=8).map(tuple)},
    ChecksViolated: {"violations": st.lists(_checks, max_size=8).map(tuple)},
}


#: By the text of a field's type: nothing that is counted or measured is negative.
_TYPES = {"int": _counts, "float": st.floats(0, 1e6), "Mapping[int, int]": _offsets}


def of_class(kind: type[Any]) -> SearchStrategy[Any]:
    """Draw events of one class."""
    by_type = {
        field.name: _TYPES[field.type]
        for field in fields(kind)
        if isinstance(field.type, str) and field.type in _TYPES
    }
    return st.builds(kind, **{**by_type, **_FIELDS.get(kind, {})})
