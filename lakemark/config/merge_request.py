"""What somebody asks of merging, made whole: what is left out is inferred as Apache Hudi does.

Ordering fields mean event time, none mean commit time. A payload class means what Apache Hudi 1.2.0
makes of it in a new table of version 9. What does not go together is refused, with the name of the
setting as ``TableSpec`` has it.

Source: ``HoodieTableConfig.inferMergingConfigsForV9TableCreation``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from lakemark.config import keys
from lakemark.config.merge_settings import (
    PAYLOAD_CLASSES,
    PAYLOAD_STRATEGY,
    MergeSettings,
    PartialUpdateMode,
    has_rules,
    payload_of_mode,
    payload_settings,
    strategy_of_mode,
)
from lakemark.config.merger_name import check_class_path
from lakemark.config.table_properties import MergeMode
from lakemark.errors import InvalidConfig
from lakemark.model.changes import DeleteMarker
from lakemark.model.format_version import FormatVersion


@dataclass(frozen=True, slots=True)
class Fault:
    """A setting that does not go with the others.

    Attributes:
        setting: a field of ``MergeRequest``.
        text: its value, what is wrong with it, and the remedy.
    """

    setting: str
    text: str


@dataclass(frozen=True)
class MergeRequest:
    """Settings as they were asked for; None and empty ones are inferred.

    Attributes:
        ordering: columns that order changes to one record, most significant first.
        merge_mode: which of two changes wins.
        partial_update: which values of the winner are filled from the other record.
        unavailable_value: the text that ``FILL_UNAVAILABLE`` fills.
        delete_marker: marks deletes among data rows.
        payload: a Java class, or its last part, that says all of this.
        merger_class: ``package.module:Class`` that merges, in mode ``CUSTOM``.
    """

    ordering: tuple[str, ...] = ()
    merge_mode: MergeMode | None = None
    partial_update: PartialUpdateMode | None = None
    unavailable_value: str | None = None
    delete_marker: DeleteMarker | None = None
    payload: str | None = None
    merger_class: str | None = None

    def settings(self) -> MergeSettings:
        """What decides between records, all said.

        Raises:
            InvalidConfig: settings that do not go together, an unknown payload.
        """
        faults = [f"{fault.setting}: {fault.text}" for fault in self.faults()]
        if faults:
            raise InvalidConfig("; ".join(faults))
        return self._whole

    def faults(self) -> Iterator[Fault]:
        """Everything that does not go together."""
        if self.payload is not None and self.payload_class is None:
            yield Fault("payload", f"{self.payload} is unknown; known are {_short_names()}")
            return
        if self.payload is not None:
            against = list(self._against_payload(self.payload, self._of_payload))
            yield from against
            if against:
                return
        yield from self._of_mode()
        yield from self._of_merger()
        yield from self._of_partial_update()
        marker = self.delete_marker
        if marker is not None and not (marker.field and marker.text):
            text = f"{marker.field!r} = {marker.text!r} marks nothing; give the column and the text"
            yield Fault("delete_marker", text)

    @property
    def payload_class(self) -> str | None:
        """The Java class of the payload; None without one, or without a known one."""
        return payload_class_of(self.payload) if self.payload is not None else None

    @cached_property
    def _of_payload(self) -> MergeSettings:
        assert self.payload_class is not None
        return payload_settings(self.payload_class)

    @cached_property
    def _whole(self) -> MergeSettings:
        """The settings, where nothing is wrong with them."""
        if self.payload_class is not None:
            said = self._of_payload
            return replace(
                said,
                ordering_fields=said.ordering_fields or self.ordering,
                payload=None,
                delete_marker=said.delete_marker or self.delete_marker,
            )
        return MergeSettings(
            self._mode,
            self.ordering,
            self.partial_update,
            self.unavailable_value,
            delete_marker=self.delete_marker,
            merger_class=self.merger_class,
        )

    @property
    def _mode(self) -> MergeMode:
        if self.merge_mode is not None:
            return self.merge_mode
        if self.payload_class is not None:
            return self._of_payload.mode
        if self.merger_class is not None:
            return MergeMode.CUSTOM
        return MergeMode.EVENT_TIME if self.ordering else MergeMode.COMMIT_TIME

    def _against_payload(self, payload: str, said: MergeSettings) -> Iterator[Fault]:
        """What is asked for and the payload says otherwise."""
        asked_and_said: Mapping[str, tuple[object, object]] = {
            "merge_mode": (self.merge_mode, said.mode),
            "ordering": (self.ordering or None, said.ordering_fields or self.ordering),
            "partial_update": (self.partial_update, said.partial_update),
            "unavailable_value": (self.unavailable_value, said.unavailable_value),
            "delete_marker": (self.delete_marker, said.delete_marker or self.delete_marker),
            "merger": (self.merger_class, None),
        }
        for setting, (asked, means) in asked_and_said.items():
            if asked is not None and asked != means:
                text = (
                    f"{word(asked)} contradicts payload {payload}, which means {word(means)}; "
                    "leave one of the two out"
                )
                yield Fault(setting, text)

    def _of_mode(self) -> Iterator[Fault]:
        has_ordering = self.ordering or (self.payload_class and self._of_payload.ordering_fields)
        if self._mode is not MergeMode.EVENT_TIME or has_ordering:
            return
        if self.merge_mode is not None:
            yield Fault("merge_mode", "event_time needs ordering: name the columns")
        else:
            text = f"{self.payload} means event_time, which needs ordering: name the columns"
            yield Fault("payload", text)

    def _of_merger(self) -> Iterator[Fault]:
        if self.payload is not None:
            return
        if self.merger_class is None:
            if self._mode is MergeMode.CUSTOM:
                text = "custom needs merger: name a class as package.module:Class"
                yield Fault("merge_mode", text)
            return
        if self._mode is not MergeMode.CUSTOM:
            text = (
                f"{self.merger_class} has no meaning with merge_mode {word(self._mode)}; "
                "write custom, or leave the merger out"
            )
            yield Fault("merger", text)
        if self.partial_update is not None:
            text = (
                f"{word(self.partial_update)} has no meaning with a merger of your own, which "
                "decides itself what is filled; leave one of the two out"
            )
            yield Fault("partial_update", text)
        try:
            check_class_path(self.merger_class)
        except InvalidConfig as error:
            yield Fault("merger", str(error))

    def _of_partial_update(self) -> Iterator[Fault]:
        if self.payload is not None:
            return
        fills_text = self.partial_update is PartialUpdateMode.FILL_UNAVAILABLE
        if fills_text and not self.unavailable_value:
            text = "fill_unavailable needs unavailable_value: the text that stands for no value"
            yield Fault("partial_update", text)
        if self.unavailable_value is not None and not fills_text:
            text = (
                f"{self.unavailable_value!r} has no meaning with partial_update "
                f"{word(self.partial_update)}; write fill_unavailable, or leave the value out"
            )
            yield Fault("unavailable_value", text)


def payload_class_of(name: str) -> str | None:
    """The Java class of a payload, given whole or by its last part; None for an unknown one."""
    for known in PAYLOAD_CLASSES:
        if name in (known, _short(known)):
            return known
    return None


def merge_properties(
    settings: MergeSettings,
    payload_class: str | None = None,
    version: FormatVersion = FormatVersion.V9,
) -> dict[str, str]:
    """The settings as a table stores them; ordering fields and mode apart.

    Before version 9 a payload class says it, and a strategy beside it that Hudi 1.2 looks at.

    Args:
        settings: whole ones.
        payload_class: the Java class that was asked for, which they stand for.
        version: the table's.

    Raises:
        InvalidConfig: what a table of that version cannot say.
    """
    if version is not FormatVersion.V9:
        return _old_merge_properties(settings, payload_class, version)
    marker = settings.delete_marker
    stored = {
        keys.MERGE_STRATEGY_ID: settings.strategy_id,
        keys.PARTIAL_UPDATE_MODE: settings.partial_update,
        keys.UNAVAILABLE_VALUE: settings.unavailable_value,
        keys.DELETE_FIELD: marker.field if marker else None,
        keys.DELETE_MARKER: marker.text if marker else None,
        keys.LEGACY_PAYLOAD_CLASS: payload_class,
    }
    return {key: str(value) for key, value in stored.items() if value is not None}


def _old_merge_properties(
    settings: MergeSettings, payload_class: str | None, version: FormatVersion
) -> dict[str, str]:
    said = payload_settings(payload_class) if payload_class else None
    if len(settings.ordering_fields) > 1:
        message = f"ordering: tables of version {version:d} order by one column; name one"
        raise InvalidConfig(message)
    unsaid = {
        "partial_update": (settings.partial_update, said and said.partial_update),
        "delete_when": (settings.delete_marker, said and said.delete_marker),
    }
    for setting, (asked, means) in unsaid.items():
        if asked is not None and asked != means:
            message = (
                f"{setting}: tables of version {version:d} say {word(asked)} by their payload "
                f"alone; name one that means it ({_short_names()}), or create version 9"
            )
            raise InvalidConfig(message)
    payload = payload_class or payload_of_mode(settings.mode)
    of_rules = PAYLOAD_STRATEGY if has_rules(payload_class) else strategy_of_mode(settings.mode)
    strategy = settings.strategy_id or of_rules
    key = keys.OLD_MERGE_STRATEGY_ID if version is FormatVersion.V6 else keys.MERGE_STRATEGY_ID
    named = {keys.PAYLOAD_CLASS: payload, key: strategy}
    return {key: text for key, text in named.items() if text is not None}


def word(value: object) -> str:
    """A setting's value as people write it: ``event_time`` rather than what is stored."""
    if value is None or value == ():
        return "none"
    if isinstance(value, MergeMode | PartialUpdateMode):
        return value.name.lower()
    if isinstance(value, DeleteMarker):
        return f"{value.field} = {value.text!r}"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _short(payload_class: str) -> str:
    return payload_class.rpartition(".")[2]


def _short_names() -> str:
    return ", ".join(_short(known) for known in PAYLOAD_CLASSES)
