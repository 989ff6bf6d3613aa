"""Translates how a job merges records of one key.

Source: ``HoodieStreamer.combineProperties`` and ``HoodieTableConfig.inferMergingConfigsForWrites``
of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakemark.config.merge_request import find_payload_class, setting_text
from lakemark.config.merge_settings import (
    MergeSettings,
    has_rules,
    payload_settings,
    strategy_of_mode,
)
from lakemark.config.table_properties import MergeMode
from streamer.migration.job import Job
from streamer.migration.outcome import Harmless, Missing, Outcome, Sets
from streamer.migration.rule import shown
from streamer.migration.table import fields_of

_ORDERING = "--source-ordering-fields"
_MODE, _PAYLOAD = "--merge-mode", "--payload-class"
_STRATEGY, _CLASSES = "--merge-strategy-id", "--merge-impl-classes"
_WRITE = "hoodie.datasource.write."
_DELETE_FIELD, _DELETE_MARKER = "hoodie.payload.delete.field", "hoodie.payload.delete.marker"

_EVENT_TIME = "hoodie.payload.event.time.field"
_TRACKS_EVENT_TIME = "hoodie.write.track.event.time.watermark"

#: For each option: the properties that mean the same, and that HoodieStreamer does not use.
_SAME = {
    _ORDERING: (
        "hoodie.table.ordering.fields",
        f"{_WRITE}precombine.field",
        "hoodie.payload.ordering.field",
    ),
    _PAYLOAD: (f"{_WRITE}payload.class", "hoodie.compaction.payload.class"),
    _MODE: ("hoodie.write.record.merge.mode",),
    _STRATEGY: ("hoodie.write.record.merge.strategy.id",),
    _CLASSES: ("hoodie.write.record.merge.custom.implementation.classes",),
}

#: The class that older releases had in another package.
_MOVED = {
    "org.apache.hudi.payload.AWSDmsAvroPayload": ("org.apache.hudi.common.model.AWSDmsAvroPayload")
}


def convert_merging(job: Job) -> Iterator[Outcome]:
    """Yield what becomes of the ordering, the merge mode and the payload class."""
    yield from _properties(job)
    yield from _delete_marker(job)
    yield from _event_times(job)
    if not job.has(_PAYLOAD):
        yield from _of_mode(job)
        return
    payload = find_payload_class(_MOVED.get(job.get(_PAYLOAD), job.get(_PAYLOAD)))
    if payload is None:
        remedy = (
            f"{shown(_PAYLOAD, job.get(_PAYLOAD))}: write a merger in Python, and name it in "
            "table.merger; Apache Hudi must then merge with a class that does the same"
        )
        yield Missing(job.named(_PAYLOAD, _MODE, _STRATEGY, _CLASSES), remedy, True)
        yield from _ordering(job, MergeMode.EVENT_TIME)
        return
    implied = payload_settings(payload)
    names = job.named(_PAYLOAD, _MODE, _STRATEGY, _CLASSES)
    if has_rules(payload):
        yield Sets("table.payload", payload.rpartition(".")[2], names)
        yield from _ordering(job, implied.mode, implied)
    else:
        yield from _mode(job, implied.mode, names)


def _properties(job: Job) -> Iterator[Outcome]:
    """Yield the properties that repeat an option."""
    for option, properties in _SAME.items():
        for name in job.named(*properties):
            if not job.has(name) or job.get(name).lower() == job.get(option).lower():
                yield Harmless((name,), f"it repeats {option}, which counts")
            elif _agrees(job, option, job.get(name)):
                yield Harmless((name,), "the options make HoodieStreamer merge in the same way")
            else:
                remedy = (
                    f"HoodieStreamer merges by {option}, and not by this property; remove the "
                    "property, or, if rows are to be merged as it says, give lakemark migrate the "
                    f"option {option} with this value (lakemark table show prints how a table that "
                    "exists merges)"
                )
                yield Missing((name,), remedy, True)


def _agrees(job: Job, option: str, value: str) -> bool:
    """Return whether a job merges as a property asks, although it does not use the property."""
    asked = _mode_of_payload(value) if option == _PAYLOAD else _mode_of_property(option, value)
    given = _mode_of_payload(job.get(_PAYLOAD)) if job.has(_PAYLOAD) else _mode_of(job)
    return asked is not None and _effective(job, asked) is _effective(job, given)


def _effective(job: Job, mode: MergeMode | None) -> MergeMode | None:
    """Return how records are merged in a mode; without ordering fields, the last one wins."""
    without_order = mode is MergeMode.EVENT_TIME and not fields_of(job, _ORDERING)
    return MergeMode.COMMIT_TIME if without_order else mode


def _mode_of_payload(value: str) -> MergeMode | None:
    """Return the merge mode that is all that a payload class asks for; None if there is none."""
    payload = find_payload_class(_MOVED.get(value, value))
    return None if payload is None or has_rules(payload) else payload_settings(payload).mode


def _mode_of_property(option: str, value: str) -> MergeMode | None:
    """Return the merge mode that a mode or a strategy names, except a custom one."""
    modes = (MergeMode.EVENT_TIME, MergeMode.COMMIT_TIME)
    if option == _STRATEGY:
        return next((one for one in modes if strategy_of_mode(one) == value.lower()), None)
    return next((one for one in modes if option == _MODE and one == value.upper()), None)


def _delete_marker(job: Job) -> Iterator[Outcome]:
    names = job.named(_DELETE_FIELD, _DELETE_MARKER)
    if job.has(_DELETE_FIELD) and job.has(_DELETE_MARKER):
        marker = {"field": job.get(_DELETE_FIELD), "value": job.get(_DELETE_MARKER)}
        yield Sets("table.delete_when", marker, names)
    elif names:
        yield Missing(names, "a delete marker needs a field and a value; add both", True)


def _event_times(job: Job) -> Iterator[Outcome]:
    names = job.named(_EVENT_TIME, _TRACKS_EVENT_TIME)
    if job.has(_EVENT_TIME) and job.is_set(_TRACKS_EVENT_TIME):
        comment = "The column must contain timestamps, or whole seconds or milliseconds, not texts."
        yield Sets("table.event_time_column", job.get(_EVENT_TIME), names, comment)
    elif names:
        yield Harmless(names, "commits record event times only if both properties are set")


def _of_mode(job: Job) -> Iterator[Outcome]:
    """Yield the settings of a job without a payload class."""
    names = job.named(_MODE, _STRATEGY, _CLASSES)
    mode = _mode_of(job)
    if mode is MergeMode.CUSTOM:
        remedy = "write the merger in Python, and name it in table.merger"
        yield Missing(names, remedy, True)
        yield from _ordering(job, MergeMode.EVENT_TIME)
    elif mode is None:
        yield Missing(names, "this is not a merge mode of Apache Hudi", True)
        yield from _ordering(job, MergeMode.EVENT_TIME)
    else:
        yield from _mode(job, mode, names)


def _mode_of(job: Job) -> MergeMode | None:
    """Return the mode that is given or inferred; None if it is unknown."""
    if job.has(_STRATEGY):
        known = (one for one in MergeMode if strategy_of_mode(one) == job.get(_STRATEGY).lower())
        return next(known, MergeMode.CUSTOM)
    if job.has(_MODE):
        return next((one for one in MergeMode if one == job.get(_MODE).upper()), None)
    return MergeMode.EVENT_TIME if fields_of(job, _ORDERING) else MergeMode.COMMIT_TIME


def _mode(job: Job, mode: MergeMode, names: tuple[str, ...]) -> Iterator[Outcome]:
    if mode is MergeMode.EVENT_TIME and not fields_of(job, _ORDERING):
        comment = "Without ordering fields, the record that arrived last wins."
        yield Sets("table.merge_mode", "commit_time", names, comment)
        yield from _ordering(job, MergeMode.COMMIT_TIME)
        return
    comment = ""
    if not names and not fields_of(job, _ORDERING):
        comment = (
            "The job names no ordering fields. Apache Hudi before 1.1 then ordered by ts; see "
            "lakemark table show."
        )
    yield Sets("table.merge_mode", setting_text(mode), names, comment)
    yield from _ordering(job, mode)


def _ordering(job: Job, mode: MergeMode, implied: MergeSettings | None = None) -> Iterator[Outcome]:
    """Yield the ordering columns, unless the mode ignores them or the payload implies them."""
    fields, names = fields_of(job, _ORDERING), job.named(_ORDERING)
    if not names:
        return
    if mode is MergeMode.COMMIT_TIME:
        yield Harmless(names, "the record that arrived last wins, whatever its ordering value is")
    elif implied is not None and implied.ordering_fields:
        yield Harmless(names, f"the payload orders by {', '.join(implied.ordering_fields)}")
    elif fields:
        yield Sets("table.ordering", fields, names)
