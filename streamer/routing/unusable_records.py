"""Finds first records of a new table that cannot become rows, whatever columns the table gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lakemark.config.table_properties import MergeMode
from streamer.config.decode import JsonDecodeConfig
from streamer.config.pipeline import PipelineConfig
from streamer.table_setup import table_spec
from transforms.decode.json_scanner import parse
from transforms.reject_reason import RejectCode, RejectReason
from transforms.rejects import Rejects, Stage

#: A column with which values can be decoded before the columns of the table are known.
_ANY_COLUMN = pa.schema([("value", pa.string())])

#: Why a record is rejected, and at which step; None if it may become a row.
_Fault: TypeAlias = tuple[Stage, RejectReason] | None

_NO_CONTENT = RejectReason(
    RejectCode.INVALID_MESSAGE, "the object has no field with a value, so it shows no columns"
)


@dataclass(frozen=True, slots=True)
class FirstRecordsOfTable:
    """The records that a new table receives first. Tombstones are in neither part.

    Attributes:
        usable: the records that may become rows.
        rejects: the others.
    """

    usable: pa.Table
    rejects: Rejects


def divide_first_records(config: PipelineConfig, records: pa.Table) -> FirstRecordsOfTable:
    """Find the records that cannot become rows: they are no JSON, or lack what each row needs.

    Values of other formats count as usable, because their columns are not inferred from JSON.

    Args:
        config: the pipeline of the table.
        records: raw records (``transforms.raw_records``).
    """
    records = records.filter(records.column("value").is_valid())
    if not isinstance(config.decode, JsonDecodeConfig):
        return FirstRecordsOfTable(records, Rejects.empty())
    faults = _find_faults(config, records.column("value"))
    usable = [index for index, fault in enumerate(faults) if fault is None]
    parts = [_reject(config, records, faults, stage) for stage in Stage]
    return FirstRecordsOfTable(records.take(pa.array(usable, pa.int64())), Rejects.concat(parts))


def _reject(
    config: PipelineConfig, records: pa.Table, faults: Sequence[_Fault], stage: Stage
) -> Rejects:
    """Reject the records with a fault of one step."""
    found = {n: fault[1] for n, fault in enumerate(faults) if fault and fault[0] is stage}
    indices = np.array([*found], np.int64)
    return Rejects.from_records(records, indices, [*found.values()], stage, config.kafka.topic)


def _find_faults(config: PipelineConfig, values: pa.ChunkedArray) -> list[_Fault]:
    """Return the fault of each value."""
    decoded = config.decode.for_some_columns().decoder(_ANY_COLUMN).decode(values)
    reasons = dict(zip(decoded.rejected.tolist(), decoded.reasons, strict=True))
    unreadable = {n: one for n, one in reasons.items() if one.code is RejectCode.INVALID_MESSAGE}
    needs = _Needs.of(config)
    return [
        (Stage.DECODE, unreadable[index]) if index in unreadable else needs.find_fault(value)
        for index, value in enumerate(values.to_pylist())
    ]


@dataclass(frozen=True, slots=True)
class _Needs:
    """The fields that each record needs, with dots inside objects.

    They are not known if steps of ``transform`` may compute them.
    """

    record_key: tuple[str, ...]
    ordering: tuple[str, ...]

    @classmethod
    def of(cls, config: PipelineConfig) -> _Needs:
        """Return what a pipeline needs of each record."""
        if config.transform:
            return cls((), ())
        merging = table_spec(config).merging
        ordering = () if merging.mode is MergeMode.COMMIT_TIME else merging.ordering_fields
        of_source = {one.name for one in config.source.record_columns}
        return cls(_without(config.table.record_key, of_source), _without(ordering, of_source))

    def find_fault(self, value: bytes) -> _Fault:
        """Return why a JSON object cannot become a row; None if it may."""
        try:
            record = parse(value.decode())
        except RecursionError:  # the decoder ignores such a field, as it may be unknown
            return None
        assert isinstance(record, Mapping), type(record)  # all others were rejected
        if any(not _has_content(one) or one == "" for one in _fields(record, self.record_key)):
            named = ", ".join(self.record_key)
            text = f"the record key ({named}) is null or empty"
            return Stage.KEY, RejectReason(RejectCode.MISSING_KEY, text, named)
        if any(not _has_content(one) for one in _fields(record, self.ordering)):
            named = ", ".join(self.ordering)
            text = f"the ordering value ({named}) is null"
            return Stage.ORDERING, RejectReason(RejectCode.MISSING_ORDERING, text, named)
        if not any(map(_has_content, record.values())):
            return Stage.DECODE, _NO_CONTENT
        return None


def _without(names: Iterable[str], others: set[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in others)


def _fields(record: object, names: Sequence[str]) -> Iterator[object]:
    """Yield the value of each field; None for a field that the record lacks."""
    for name in names:
        found = record
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        yield found


def _has_content(value: object) -> bool:
    """Return whether a value shows a type; null, ``[]`` and ``{}`` do not."""
    return value is not None and value != [] and value != {}
