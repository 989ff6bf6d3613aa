"""Finds the route of each raw record: the value that names its table; and divides a batch by it.

A route is the text of a header, or that of a field of the value. If all tables decode the values in
the same way, and the rows take no more memory than the records, the whole values are decoded here,
and the tables use these rows (see ``transforms.decoded_rows``). Otherwise only this field is
decoded here, and the table of the record decodes the whole value later, with the columns that this
table has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.execution.runner import Runner
from lakemark.schema.field_path import column_at
from transforms.decode.decode_result import DecodeResult, Indices
from transforms.decode.decoder import ColumnDecoder
from transforms.decoded_rows import with_rows, without_some_rows
from transforms.raw_records import HeaderColumn
from transforms.reject_reason import RejectCode, RejectReason
from transforms.rejects import Rejects, Stage

#: The records of a batch are divided in pieces, several at once.
_PIECE_RECORDS = 1 << 16

#: So many records of a piece show whether their decoded rows are small enough to be kept.
_PROBED_RECORDS = 1 << 10

_NO_ROUTES = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class RouteValues:
    """The routes of some records.

    Attributes:
        texts: the value that names the table of each record; null if there is none, and for
            ignored tombstones.
        records: the records, with their decoded rows if all tables decode them in the same way, and
            the rows take no more memory than the records.
        reasons: why a record has no route, by its index; for null texts only. A record whose text
            is null without a reason has a null or missing field or header.
        ignored: the indices of the tombstones that the pipeline ignores.
    """

    texts: pa.Array
    records: pa.Table
    reasons: Mapping[int, RejectReason] = field(default_factory=dict)
    ignored: Indices = field(default_factory=lambda: _NO_ROUTES)


class Route(ABC):
    """Finds the routes of records."""

    @abstractmethod
    def values(self, records: pa.Table) -> RouteValues:
        """Return the routes of raw records (``transforms.raw_records``)."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The field or header, for reasons: ``field 'type'``."""


@dataclass(frozen=True, slots=True)
class HeaderRoute(Route):
    """The route is the text of a header; the last one counts, if there are several.

    Attributes:
        header: the name of the header.
        ignores_tombstones: whether the pipeline ignores records without a value.
    """

    header: str
    ignores_tombstones: bool = False

    @property
    def name(self) -> str:
        """See ``Route``."""
        return f"header {self.header!r}"

    def values(self, records: pa.Table) -> RouteValues:
        """See ``Route``."""
        indices = np.arange(records.num_rows, dtype=np.int64)
        texts, is_broken = HeaderColumn("route", self.header).texts(records, indices)
        reason = RejectReason(
            RejectCode.INVALID_ROUTE, f"{self.name} names the table, but is not UTF-8", self.header
        )
        ignored = _tombstones(records) if self.ignores_tombstones else _NO_ROUTES
        if len(ignored):  # whatever their headers are
            is_ignored = np.zeros(records.num_rows, np.bool_)
            is_ignored[ignored] = True
            texts = pc.if_else(pa.array(is_ignored), None, texts)
            is_broken &= ~is_ignored
        broken = np.flatnonzero(is_broken)
        return RouteValues(texts, records, dict.fromkeys(broken.tolist(), reason), ignored)


@dataclass(frozen=True, slots=True)
class FieldRoute(Route):
    """The route is a text in a field of the value.

    Attributes:
        path: the dotted name of the field.
        decoder: decodes only this field.
        of_tables: the decoder of all tables, whose columns include the field; None if the tables
            may have different decoders.
        ignores_tombstones: whether the pipeline ignores records without a value. Otherwise, they
            have no route, because they have no fields.
    """

    path: str
    decoder: ColumnDecoder
    of_tables: ColumnDecoder | None = None
    ignores_tombstones: bool = False

    @property
    def name(self) -> str:
        """See ``Route``."""
        return f"field {self.path!r}"

    def values(self, records: pa.Table) -> RouteValues:
        """See ``Route``."""
        count, tombstones = records.num_rows, _tombstones(records)
        is_value = np.ones(count, np.bool_)
        is_value[tombstones] = False
        indices = np.flatnonzero(is_value)
        values = records.column("value")
        if len(tombstones):
            values = values.filter(pa.array(is_value))
        whole = self._decode_whole(values, records.nbytes)
        if whole is None:
            decoded = self._only_routes(self.decoder.decode(values))
        else:
            assert self.of_tables is not None
            decoded = self._routes_of(whole, values)
            records = with_rows(records, self.of_tables, whole.at(indices))
        decoded = decoded.at(indices)
        texts = _spread(decoded.rows.column(0), decoded.accepted, count)
        reasons = dict(zip(decoded.rejected.tolist(), decoded.reasons, strict=True))
        if not self.ignores_tombstones:
            reasons |= dict.fromkeys(tombstones.tolist(), self._no_fields())
            tombstones = _NO_ROUTES
        return RouteValues(texts, records, reasons, tombstones)

    def _decode_whole(self, values: pa.ChunkedArray, max_bytes: int) -> DecodeResult | None:
        """Return the rows of all tables; None if tables differ, or the rows take too much memory.

        The rows of a whole batch are kept until its tables are written. A value of few bytes may
        become a row of many columns, nearly all of them null.

        Args:
            values: the values of a piece, without tombstones.
            max_bytes: how much memory the rows may take.
        """
        if self.of_tables is None:
            return None
        if len(values) > _PROBED_RECORDS:
            probed = self.of_tables.decode(values.slice(0, _PROBED_RECORDS))
            if probed.rows.nbytes * len(values) > max_bytes * _PROBED_RECORDS:
                return None
        whole = self.of_tables.decode(values)
        return whole if whole.rows.nbytes <= max_bytes else None

    def _routes_of(self, whole: DecodeResult, values: pa.ChunkedArray) -> DecodeResult:
        """Return the routes of values that the decoder of the tables has decoded.

        A value that it rejects has a route if only another field is invalid. Its table rejects it.
        """
        routes = self._only_routes(whole)
        if not len(whole.rejected):
            return routes
        again = self.decoder.decode(values.take(pa.array(whole.rejected)))
        return DecodeResult.merge(
            [routes.without(whole.rejected.tolist()), self._only_routes(again).at(whole.rejected)]
        )

    def _only_routes(self, decoded: DecodeResult) -> DecodeResult:
        routes = column_at(decoded.rows, self.path).cast(pa.string())
        return replace(decoded, rows=pa.table({"route": routes}))

    def _no_fields(self) -> RejectReason:
        text = (
            f"the value is null (a tombstone), so it lacks {self.name}, which names the table; "
            "route by a header, or ignore tombstones (decode.tombstones: ignore)"
        )
        return RejectReason(RejectCode.MISSING_ROUTE, text, self.path)


@dataclass(frozen=True, slots=True)
class DividedRecords:
    """The records of a batch, divided by table.

    Attributes:
        parts: the records of each table, in order of arrival.
        rejects: the records that belong to no table.
        ignored: the number of ignored tombstones.
    """

    parts: Mapping[str, pa.Table]
    rejects: Rejects
    ignored: int


def divide(
    records: pa.Table,
    route: Route,
    refuse: Callable[[str], RejectReason | None],
    default: str | None,
    topic: str,
    runner: Runner,
) -> DividedRecords:
    """Divide raw records by their route.

    Args:
        records: the records, in order of arrival.
        route: finds the route of each record.
        refuse: returns why no table may have this name; None if it may. It is called once for each
            value, in order of arrival.
        default: the table of records whose field or header is null or missing; None to reject them.
        topic: the topic of the records.
        runner: the threads that divide the records.
    """
    begins = range(0, records.num_rows, _PIECE_RECORDS)
    values = runner.map(route.values, [records.slice(at, _PIECE_RECORDS) for at in begins])
    pieces = dict(enumerate(without_some_rows([one.records for one in values])))
    found = _join(records, values)
    del values  # so that ``_parts`` can release the pieces
    encoded = found.texts.dictionary_encode()
    numbers = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    names: list[str] = encoded.dictionary.to_pylist()
    reasons = dict(found.reasons)
    targets = _targets(names, refuse, numbers, reasons)
    is_missing = _is_missing(numbers, reasons, found.ignored)
    if default is not None:
        targets[is_missing] = names.index(default) if default in names else len(names)
        names = names if default in names else [*names, default]
    else:
        text = f"{route.name} names the table, but is null or missing; route.default names one"
        missing = RejectReason(RejectCode.MISSING_ROUTE, text)
        reasons |= dict.fromkeys(np.flatnonzero(is_missing).tolist(), missing)
    rejects = _rejects(records, reasons, topic)
    if len(used := np.unique(targets)) == 1 and used[0] >= 0:
        return DividedRecords({names[used[0]]: pa.concat_tables(pieces.values())}, rejects, 0)
    return DividedRecords(_parts(pieces, targets, names, runner), rejects, len(found.ignored))


def _join(records: pa.Table, found: Sequence[RouteValues]) -> RouteValues:
    """Return the routes of all records, which were found in pieces."""
    texts, ignored = [pa.array([], pa.string())], [_NO_ROUTES]
    reasons = dict[int, RejectReason]()
    begin = 0
    for one in found:
        texts.append(one.texts)
        reasons |= {begin + index: reason for index, reason in one.reasons.items()}
        ignored.append(begin + one.ignored)
        begin += len(one.texts)
    return RouteValues(pa.concat_arrays(texts), records, reasons, np.concatenate(ignored))


def _rejects(records: pa.Table, reasons: Mapping[int, RejectReason], topic: str) -> Rejects:
    if not reasons:
        return Rejects.empty()
    rejected = np.array(sorted(reasons), np.int64)
    listed = [reasons[index] for index in rejected.tolist()]
    return Rejects.from_records(records, rejected, listed, Stage.ROUTE, topic)


def _targets(
    names: list[str],
    refuse: Callable[[str], RejectReason | None],
    numbers: npt.NDArray[np.int64],
    reasons: dict[int, RejectReason],
) -> npt.NDArray[np.int64]:
    """Return the number of each record's table, -1 without one; add the reasons of refused names.

    Values in the texts of rejected records count as any other.
    """
    refused = dict[int, RejectReason]()
    for number, name in enumerate(names):
        if (reason := refuse(name)) is not None:
            refused[number] = reason
    is_refused = np.zeros(len(names) + 1, np.bool_)  # the last one is that of the number -1
    is_refused[list(refused)] = True
    rows, targets = np.flatnonzero(is_refused[numbers]), numbers.copy()
    targets[rows] = -1
    pairs = zip(rows.tolist(), numbers[rows].tolist(), strict=True)
    reasons |= {row: refused[number] for row, number in pairs}
    return targets


def _is_missing(
    numbers: npt.NDArray[np.int64], reasons: Mapping[int, RejectReason], ignored: Indices
) -> npt.NDArray[np.bool_]:
    is_missing: npt.NDArray[np.bool_] = numbers < 0
    is_missing[list(reasons)] = False
    is_missing[ignored] = False
    return is_missing


def _parts(
    pieces: dict[int, pa.Table], targets: npt.NDArray[np.int64], names: list[str], runner: Runner
) -> dict[str, pa.Table]:
    """Return the records of each table: slices of the pieces, each of which is sorted by table.

    Each piece is removed when it is sorted, so that few decoded rows exist twice.
    """

    def sort(number: int) -> tuple[pa.Table, list[int]]:
        """Return the records of a piece, sorted by table, and where the records of each begin."""
        own = targets[number * _PIECE_RECORDS : (number + 1) * _PIECE_RECORDS]
        order = np.argsort(own, kind="stable")
        begins = np.searchsorted(own[order], np.arange(len(names) + 1)).tolist()
        return pieces.pop(number).take(pa.array(order)), begins

    slices: list[list[pa.Table]] = [[] for _ in names]
    for rows, begins in runner.map(sort, range(len(pieces))):
        for some, (begin, end) in zip(slices, pairwise(begins), strict=True):
            if begin < end:
                some.append(rows.slice(begin, end - begin))
    found = zip(names, slices, strict=True)
    return {name: pa.concat_tables(some) for name, some in found if some}


def _spread(texts: pa.ChunkedArray, indices: Indices, count: int) -> pa.Array:
    """Return ``count`` texts: those given at their indices, and null elsewhere."""
    combined = texts.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):  # no chunk at all, or too many bytes for one
        combined = (
            pa.concat_arrays(combined.chunks) if combined.chunks else pa.nulls(0, pa.string())
        )
    if len(indices) == count:
        return combined
    rows = np.full(count, -1, np.int64)
    rows[indices] = np.arange(len(indices))
    return combined.take(pa.array(rows, mask=rows < 0))


def _tombstones(records: pa.Table) -> Indices:
    values = records.column("value")
    if not values.null_count:
        return _NO_ROUTES
    is_null = values.is_null().to_numpy()
    return np.flatnonzero(is_null).astype(np.int64)
