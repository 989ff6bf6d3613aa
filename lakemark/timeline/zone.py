"""Finds the time zone of a table's timeline (``hoodie.table.timeline.timezone``).

The property is ``UTC`` or ``LOCAL``. ``LOCAL``, the default of Apache Hudi, means the default zone
of each JVM that writes the table, so the property does not name the zone. For ``LOCAL``, lakemark
uses the zone in the setting ``table.timeline_timezone``. Without this setting, lakemark uses this
machine's zone, if the table's instants show that the zone is right.

The offset is derived from the files of requested commits. Such a file is written right after its
instant time was generated. So the instant time and the file's modification time differ by the
zone's offset. Files that were copied later have other modification times. With such files, the
difference is not the same for all of the newest instants, so no offset is derived.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from lakemark.config import keys
from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig
from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.timeline.clock import UTC_CLOCK, TimelineClock

LOCAL = "LOCAL"
SETTING = "table.timeline_timezone"

_MOST_SIGHTINGS, _FEWEST_SIGHTINGS = 10, 2
#: The offset of every zone is a multiple of this step.
_STEP = timedelta(minutes=15)
_EARLIEST_WRITE, _LATEST_WRITE = timedelta(seconds=-10), timedelta(seconds=60)
_WESTMOST, _EASTMOST = timedelta(hours=-12), timedelta(hours=14)
#: The largest change of a zone's offset between summer and winter.
_DAYLIGHT_SAVING = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Sighting:
    """The times of one requested commit, from which a zone's offset is derived.

    Attributes:
        requested_at: the commit's instant time.
        written_at: the modification time of the requested file.
    """

    requested_at: str
    written_at: datetime

    @property
    def offset(self) -> timedelta | None:
        """The zone's offset from UTC, derived from the two times; None if that is not possible."""
        # This is exactly the offset minus the time between the request and the file's creation.
        difference = self._wall_time - self.written_at
        offset = _STEP * -((-difference - _EARLIEST_WRITE) // _STEP)
        took = offset - difference
        is_offset = took <= _LATEST_WRITE and _WESTMOST <= offset <= _EASTMOST
        return offset if is_offset else None

    def is_in(self, zone: tzinfo | None) -> bool:
        """Return whether the derived offset is the zone's offset at the commit's instant time.

        The offset at the file's modification time may differ, if a clock change came in between.
        """
        offset = self.offset
        if offset is None:
            return False
        return (self._wall_time - offset).astimezone(zone).utcoffset() == offset

    @property
    def _wall_time(self) -> datetime:
        return UTC_CLOCK.parse(self.requested_at)


@dataclass(frozen=True, slots=True)
class ZoneEvidence:
    """The newest requested commits, as evidence of the timeline's zone.

    Attributes:
        sightings: the commits in the order in which their files were written. Their instant times
            would give the wrong order if the writers were in several zones.
    """

    sightings: tuple[Sighting, ...]

    @classmethod
    def of(cls, files: Iterable[tuple[Instant, datetime]]) -> ZoneEvidence:
        """Build the evidence from a timeline's files.

        Args:
            files: instants of any action and state, each with the modification time of its file.
        """
        seen = (Sighting(i.requested_at, at) for i, at in files if _shows_zone(i))
        newest = sorted(seen, key=lambda one: (one.written_at, one.requested_at))
        return cls(tuple(newest[-_MOST_SIGHTINGS:]))

    @property
    def offsets(self) -> list[timedelta]:
        """The offset of each commit. Empty if a commit has none, or if commits are too few."""
        known = [offset for one in self.sightings if (offset := one.offset) is not None]
        return known if len(known) >= max(len(self.sightings), _FEWEST_SIGHTINGS) else []

    @property
    def offset(self) -> timedelta | None:
        """The newest commit's offset from UTC; None if the commits' offsets differ too much."""
        known = self.offsets
        if not known or max(known) - min(known) > _DAYLIGHT_SAVING:
            return None
        return known[-1]

    def agrees_with(self, zone: tzinfo | None) -> bool:
        """Return whether every commit was requested in the zone. None is this process's zone."""
        return self.offset is not None and all(one.is_in(zone) for one in self.sightings)

    def contradicts(self, zone: tzinfo) -> bool:
        """Return whether a commit was requested in another zone. False if ``offsets`` is empty."""
        return bool(self.offsets) and not all(one.is_in(zone) for one in self.sightings)


def find_clock(url: str, stored: str, setting: str | None, evidence: ZoneEvidence) -> TimelineClock:
    """Return the clock of a table's timeline.

    Args:
        url: the table's URL, for messages.
        stored: the value of the table's property.
        setting: the IANA name in the setting ``table.timeline_timezone``; None if it is not set.
        evidence: the evidence of the table's instants; used only if ``stored`` is ``LOCAL``.

    Raises:
        InvalidConfig: the setting is not the name of a time zone.
    """
    named = None if setting is None else parse_zone(setting)
    if stored == "UTC":
        is_contradicted = setting not in (None, "UTC", "Etc/UTC")
        return TimelineClock(UTC, _not_utc(url, setting or "") if is_contradicted else None)
    if stored != LOCAL:
        return TimelineClock(None, f"{_property(url, stored)}, but only UTC and LOCAL are known")
    if named is not None:
        is_contradicted = evidence.contradicts(named)
        doubt = _contradicted(url, setting or "", evidence) if is_contradicted else None
        return TimelineClock(named, doubt)
    if evidence.agrees_with(None):
        return TimelineClock(None)
    return _clock_in_doubt(url, evidence)


def stored_zone(properties: TableProperties) -> str:
    """Return the table's property ``hoodie.table.timeline.timezone``, by default ``LOCAL``."""
    return properties.values.get(keys.TIMELINE_TIMEZONE, LOCAL).strip().upper()


def check_new_zone(url: str, setting: str | None) -> None:
    """Check that the setting is UTC or absent, because a new table's timeline is in UTC.

    Raises:
        InvalidConfig: the setting names another zone.
    """
    find_clock(url, "UTC", setting, ZoneEvidence(())).check()


def parse_zone(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name, such as ``America/New_York``.

    Raises:
        InvalidConfig: this machine has no time zone of that name.
    """
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        message = (
            f"{SETTING} is {name!r}, which names no time zone on this machine; use an IANA name, "
            "such as America/New_York, Asia/Tokyo or UTC"
        )
        raise InvalidConfig(message) from None


def _shows_zone(instant: Instant) -> bool:
    """Return whether an offset can be derived from the instant's file.

    Only requested ingests qualify. Plans of table services are written some time after their
    instant time was generated.
    """
    is_ingest = instant.action in (Action.COMMIT, Action.DELTA_COMMIT)
    digits = instant.requested_at
    return is_ingest and instant.state is State.REQUESTED and len(digits) == 17 and digits > "1"


def _clock_in_doubt(url: str, evidence: ZoneEvidence) -> TimelineClock:
    own = _utc_offset(datetime.now(UTC).astimezone().utcoffset() or timedelta(0))
    shown = evidence.offset
    zone = None if shown is None else timezone(shown)
    seen = (
        f"its newest instants show {_shown_offsets(evidence)}"
        if evidence.offsets
        else "its instants do not show one"
    )
    doubt = (
        f"{_property(url, LOCAL)}: its instant times are in the local time of its writers, and the "
        f"zone is not known ({seen}; this machine is at {own}). To write to the table, name the "
        f"zone of its other writers, such as {SETTING}: America/New_York in a pipeline file, "
        "or --timeline-timezone America/New_York for a command"
    )
    return TimelineClock(zone, doubt)


def _contradicted(url: str, setting: str, evidence: ZoneEvidence) -> str:
    seen = (
        f"{SETTING} is {setting!r}, but the newest instants of table {url} show "
        f"{_shown_offsets(evidence)}; "
    )
    if evidence.offset is not None:
        return f"{seen}name the zone of the table's other writers"
    return (
        f"{seen}writers in two zones generate instants out of order, which loses rows: give all "
        "writers one zone, and commit with Apache Hudi in that zone until the newest "
        f"{_MOST_SIGHTINGS} commits show it"
    )


def _shown_offsets(evidence: ZoneEvidence) -> str:
    """Return the newest commit's offset as text, or all offsets if they differ too much."""
    agreed = evidence.offset
    shown = [agreed] if agreed is not None else sorted(set(evidence.offsets))
    return " and ".join(map(_utc_offset, shown))


def _not_utc(url: str, setting: str) -> str:
    return (
        f"{SETTING} is {setting!r}, but {_property(url, 'UTC')}; remove the setting, which is for "
        "tables whose property is LOCAL"
    )


def _property(url: str, stored: str) -> str:
    return f"table {url} has {keys.TIMELINE_TIMEZONE}={stored}"


def _utc_offset(offset: timedelta) -> str:
    minutes = round(offset.total_seconds() / 60)
    sign = "-" if minutes < 0 else "+"
    return f"UTC{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
