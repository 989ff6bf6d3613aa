"""Resolves the merge settings of a user: infers missing settings as Apache Hudi does.

The default mode is that of the payload class, or custom if there is a merger. Without both, it is
event time if there are ordering fields, and commit time if there are none. A payload class implies
the settings that Apache Hudi 1.2.0 derives from it for a new table of version 9. Settings that
contradict each other are refused. The error uses their names in ``TableSpec``.

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
class SettingProblem:
    """A setting that is invalid or contradicts another setting.

    Attributes:
        setting: name of the setting in ``TableSpec``.
        text: the value of the setting, the problem, and the remedy.
    """

    setting: str
    text: str


@dataclass(frozen=True, kw_only=True)
class MergeRequest:
    """Merge settings as the user gave them. Settings that are None or empty are inferred.

    Attributes:
        ordering: columns that order changes to one record, most significant first.
        merge_mode: decides which of two changes wins.
        partial_update: decides which values of the winner come from the other record.
        unavailable_value: the text that ``FILL_UNAVAILABLE`` replaces.
        delete_marker: column and text that mark a data row as a delete.
        payload: a payload class of Apache Hudi, or the last part of its name. It implies the merge
            mode and partial updates; some payloads also imply ordering columns and delete marker.
        merger_class: class path of the user's merger in mode ``CUSTOM``; see ``MergerName``.
    """

    ordering: tuple[str, ...] = ()
    merge_mode: MergeMode | None = None
    partial_update: PartialUpdateMode | None = None
    unavailable_value: str | None = None
    delete_marker: DeleteMarker | None = None
    payload: str | None = None
    merger_class: str | None = None

    def resolve(self) -> MergeSettings:
        """Return the complete settings, with missing ones inferred.

        Raises:
            InvalidConfig: settings contradict each other, or the payload is unknown.
        """
        problems = [f"{problem.setting}: {problem.text}" for problem in self.find_problems()]
        if problems:
            raise InvalidConfig("; ".join(problems))
        return self._resolved

    def find_problems(self) -> Iterator[SettingProblem]:
        """Yield all settings that are invalid or contradict others."""
        if self.payload is not None and self.payload_class is None:
            text = f"{self.payload} is unknown; use one of {_short_names()}"
            yield SettingProblem("payload", text)
            return
        if self.payload is not None:
            found = list(self._contradictions_of_payload(self.payload, self._payload_settings))
            yield from found
            if found:
                return
        yield from self._problems_of_mode()
        yield from self._problems_of_merger()
        yield from self._problems_of_partial_update()
        marker = self.delete_marker
        if marker is not None and not (marker.field and marker.text):
            text = f"{marker.field!r} = {marker.text!r} marks nothing; give the column and the text"
            yield SettingProblem("delete_marker", text)

    @property
    def payload_class(self) -> str | None:
        """The Java class of the payload; None if there is no payload, or an unknown one."""
        return find_payload_class(self.payload) if self.payload is not None else None

    @cached_property
    def _payload_settings(self) -> MergeSettings:
        assert self.payload_class is not None
        return payload_settings(self.payload_class)

    @cached_property
    def _resolved(self) -> MergeSettings:
        """The complete settings. They are valid only if ``find_problems`` finds no problem."""
        if self.payload_class is not None:
            implied = self._payload_settings
            return replace(
                implied,
                ordering_fields=implied.ordering_fields or self.ordering,
                payload=None,
                delete_marker=implied.delete_marker or self.delete_marker,
            )
        return MergeSettings(
            mode=self._mode,
            ordering_fields=self.ordering,
            partial_update=self.partial_update,
            unavailable_value=self.unavailable_value,
            delete_marker=self.delete_marker,
            merger_class=self.merger_class,
        )

    @property
    def _mode(self) -> MergeMode:
        if self.merge_mode is not None:
            return self.merge_mode
        if self.payload_class is not None:
            return self._payload_settings.mode
        if self.merger_class is not None:
            return MergeMode.CUSTOM
        return MergeMode.EVENT_TIME if self.ordering else MergeMode.COMMIT_TIME

    def _contradictions_of_payload(
        self, payload: str, implied: MergeSettings
    ) -> Iterator[SettingProblem]:
        """Yield settings that contradict the payload."""
        compared: Mapping[str, tuple[object, object]] = {
            "merge_mode": (self.merge_mode, implied.mode),
            "ordering": (self.ordering or None, implied.ordering_fields or self.ordering),
            "partial_update": (self.partial_update, implied.partial_update),
            "unavailable_value": (self.unavailable_value, implied.unavailable_value),
            "delete_marker": (self.delete_marker, implied.delete_marker or self.delete_marker),
            "merger": (self.merger_class, None),
        }
        for setting, (given, meant) in compared.items():
            if given is not None and given != meant:
                text = (
                    f"{setting_text(given)} contradicts payload {payload}, which means "
                    f"{setting_text(meant)}; leave one of the two out"
                )
                yield SettingProblem(setting, text)

    def _problems_of_mode(self) -> Iterator[SettingProblem]:
        implied = self._payload_settings.ordering_fields if self.payload_class else ()
        if self._mode is not MergeMode.EVENT_TIME or self.ordering or implied:
            return
        if self.merge_mode is not None:
            yield SettingProblem("merge_mode", "event_time needs ordering: name the columns")
        else:
            text = f"{self.payload} means event_time, which needs ordering: name the columns"
            yield SettingProblem("payload", text)

    def _problems_of_merger(self) -> Iterator[SettingProblem]:
        if self.payload is not None:
            return
        if self.merger_class is None:
            if self._mode is MergeMode.CUSTOM:
                text = "custom needs merger: name a class as package.module:Class or FILE.py:Class"
                yield SettingProblem("merge_mode", text)
            return
        if self._mode is not MergeMode.CUSTOM:
            text = (
                f"{self.merger_class} has no meaning with merge_mode {setting_text(self._mode)}; "
                "use custom, or leave the merger out"
            )
            yield SettingProblem("merger", text)
        if self.partial_update is not None:
            text = (
                f"{setting_text(self.partial_update)} has no meaning with a merger of your own, "
                "which handles missing columns itself; leave one of the two out"
            )
            yield SettingProblem("partial_update", text)
        try:
            check_class_path(self.merger_class)
        except InvalidConfig as error:
            yield SettingProblem("merger", str(error))

    def _problems_of_partial_update(self) -> Iterator[SettingProblem]:
        if self.payload is not None:
            return
        replaces_text = self.partial_update is PartialUpdateMode.FILL_UNAVAILABLE
        if replaces_text and not self.unavailable_value:
            text = "fill_unavailable needs unavailable_value: the text that means no value"
            yield SettingProblem("partial_update", text)
        if self.unavailable_value is not None and not replaces_text:
            text = (
                f"{self.unavailable_value!r} has no meaning with partial_update "
                f"{setting_text(self.partial_update)}; use fill_unavailable, or leave the value out"
            )
            yield SettingProblem("unavailable_value", text)


def find_payload_class(name: str) -> str | None:
    """Return the class of a payload, by its name or the last part of the name; None if unknown."""
    for known in PAYLOAD_CLASSES:
        if name in (known, _short(known)):
            return known
    return None


def merge_properties(
    settings: MergeSettings,
    payload_class: str | None = None,
    version: FormatVersion = FormatVersion.V9,
) -> dict[str, str]:
    """Return the properties that store merge settings, except ordering fields and mode.

    Tables before version 9 store a payload class, and a merge strategy, which Hudi 1.2 reads.

    Args:
        settings: the complete settings.
        payload_class: the payload class that the user named; it implies the settings. None if the
            user named none.
        version: version of the table.

    Raises:
        InvalidConfig: a table of this version cannot store one of the settings.
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
    implied = payload_settings(payload_class) if payload_class else None
    if len(settings.ordering_fields) > 1:
        columns = ", ".join(settings.ordering_fields)
        message = (
            f"ordering: tables of version {version:d} order by one column, not by {columns}; use "
            "version 9, or create the table with one ordering column"
        )
        raise InvalidConfig(message)
    only_by_payload = {
        "partial_update": (settings.partial_update, implied and implied.partial_update),
        "delete_when": (settings.delete_marker, implied and implied.delete_marker),
    }
    for setting, (given, meant) in only_by_payload.items():
        if given is not None and given != meant:
            message = (
                f"{setting}: tables of version {version:d} can store {setting_text(given)} only by "
                f"a payload; use one that means it ({_short_names()}), or create version 9"
            )
            raise InvalidConfig(message)
    payload = payload_class or payload_of_mode(settings.mode)
    of_rules = PAYLOAD_STRATEGY if has_rules(payload_class) else strategy_of_mode(settings.mode)
    strategy = settings.strategy_id or of_rules
    key = keys.OLD_MERGE_STRATEGY_ID if version is FormatVersion.V6 else keys.MERGE_STRATEGY_ID
    named = {keys.PAYLOAD_CLASS: payload, key: strategy}
    return {key: text for key, text in named.items() if text is not None}


def setting_text(value: object) -> str:
    """Return the value of a setting as users write it, such as ``event_time``."""
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
