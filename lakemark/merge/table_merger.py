"""Selects the merger that the properties of a table require, for every table version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lakemark.config.merge_settings import MergeSettings, PartialUpdateMode, Payload
from lakemark.config.table_properties import MergeMode
from lakemark.merge.custom.adapter import custom_record_merger
from lakemark.merge.custom.api import CustomMerger
from lakemark.merge.custom.load import find_merger, load_merger
from lakemark.merge.partial_update.missing_columns import (
    Default,
    MissingIfDefault,
    MissingIfUnavailable,
    PartialUpdate,
)
from lakemark.merge.payload_merger import payload_merger
from lakemark.merge.record_merger import RecordMerger, commit_time_merger, event_time_merger

#: Integers that Java caches: equal values in this range are the same object, so a comparison of
#: references finds them equal.
_CACHED_INTEGERS = range(-128, 128)


def table_merger(
    settings: MergeSettings,
    avro_schema: Mapping[str, object] | None = None,
    mergers: Sequence[CustomMerger] = (),
) -> RecordMerger:
    """Return the merger of a table.

    Args:
        settings: merge settings from the table's properties.
        avro_schema: schema of the rows, which contains the defaults of columns. None if all
            defaults are null.
        mergers: custom mergers, in addition to the merger that ``settings`` names. A table in mode
            ``CUSTOM`` is merged by the first merger that has the table's strategy id.

    Raises:
        InvalidConfig: a merger cannot be imported, or does not implement the interface.
        Unsupported: no merger has the table's strategy id.
    """
    if settings.mode is MergeMode.CUSTOM:
        own = [] if settings.merger_class is None else [load_merger(settings.merger_class)]
        merger = find_merger(settings.strategy_id, [*own, *mergers])
        return custom_record_merger(merger, settings.ordering_fields)
    partial_update = _partial_update(settings, _fields(avro_schema))
    if settings.payload in (Payload.OVERWRITE_NON_DEFAULTS, Payload.PARTIAL_UPDATE):
        assert partial_update is not None, settings
        is_ordered = settings.payload is Payload.PARTIAL_UPDATE
        return payload_merger(settings.ordering_fields, partial_update, is_ordered=is_ordered)
    if settings.mode is MergeMode.COMMIT_TIME:
        return commit_time_merger(partial_update)
    return event_time_merger(
        settings.ordering_fields,
        partial_update,
        deletes_are_unconditional=settings.payload is not None,
    )


def _partial_update(
    settings: MergeSettings, fields: Sequence[Mapping[str, object]]
) -> PartialUpdate | None:
    if settings.payload is Payload.PARTIAL_UPDATE:
        return PartialUpdate(MissingIfDefault(), latest_meta=True)
    if settings.partial_update is PartialUpdateMode.IGNORE_DEFAULTS:
        is_found = _is_same_object if settings.payload is None else _is_equal
        return PartialUpdate(MissingIfDefault(_defaults(fields, is_found)))
    if settings.partial_update is PartialUpdateMode.FILL_UNAVAILABLE and settings.unavailable_value:
        return PartialUpdate(
            MissingIfUnavailable(settings.unavailable_value), settings.payload is None
        )
    return None


def _fields(avro_schema: Mapping[str, object] | None) -> list[Mapping[str, object]]:
    fields = (avro_schema or {}).get("fields")
    return [f for f in fields if isinstance(f, Mapping)] if isinstance(fields, list) else []


def _defaults(
    fields: Sequence[Mapping[str, object]], is_found: Callable[[object, object], bool]
) -> dict[str, Default | None]:
    """Return the defaults that are not null, by column.

    The value is None if Hudi never finds a value of the column equal to the default.
    """
    found: dict[str, Default | None] = {}
    for field in fields:
        kind, default = field.get("type"), field.get("default")
        if isinstance(default, bool | int | float | str) and is_found(kind, default):
            found[str(field.get("name"))] = default
        elif default is not None:
            found[str(field.get("name"))] = None
    return found


def _is_equal(kind: object, default: object) -> bool:
    """Return whether a payload class can find a value of this type equal to the default.

    Payload classes compare by value, but they never find the default of a nullable string, of
    bytes, or of a logical or nested type.
    """
    first = _first_type(kind)
    # For a nullable string, Java compares a string of Avro's class with a string of Java's class.
    # Two such strings are never equal.
    return isinstance(first, str) and (first != "string" or kind == "string") and first != "bytes"


def _is_same_object(kind: object, default: object) -> bool:
    """Return whether ``PartialUpdateHandler`` can find a value equal to the default.

    It compares references, so it finds only values for which Java has a single object.
    """
    return _first_type(kind) in ("int", "long", "boolean") and default in _CACHED_INTEGERS


def _first_type(kind: object) -> object:
    """Return the type that a field's default has: the first type if ``kind`` is a union."""
    return kind[0] if isinstance(kind, list) and kind else kind
